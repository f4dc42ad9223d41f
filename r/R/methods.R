# Reading a fitted model. All of it is computed from what the fit released, and costs nothing.

coef.tulle_fit <- function(object, encoded = FALSE, ...) {
  per_unit <- !encoded && "weight_per_unit" %in% names(object$weights)
  of <- if (per_unit) c("weight_per_unit", "intercept_per_unit") else c("weight", "intercept")
  weights <- object$weights
  intercepts <- object$intercepts
  if (nrow(intercepts) == 1) {
    return(c("(Intercept)" = intercepts[[of[2]]], setNames(weights[[of[1]]], weights$feature)))
  }
  features <- unique(weights$feature)
  table <- matrix(0, 1 + length(features), length(object$levels), dimnames = list(c("(Intercept)", features), object$levels))
  table[1, intercepts$class] <- intercepts[[of[2]]]
  table[cbind(weights$feature, weights$class)] <- weights[[of[1]]]
  table
}

formula.tulle_fit <- function(x, ...) x$formula

nobs.tulle_fit <- function(object, ...) object$n_rows

confint.tulle_fit <- function(object, parm, level = object$level, ...) {
  if (is.null(object$intervals)) tulle_stop("the model was fitted without intervals; pass intervals = TRUE to tulle_fit")
  if (!isTRUE(all.equal(level, object$level))) tulle_stop(paste0("intervals are of level ", object$level, " only"))
  table <- as.matrix(object$intervals[c("low", "high")])
  tails <- c((1 - object$level) / 2, (1 + object$level) / 2)
  dimnames(table) <- list(interval_names(object), paste(format(100 * tails, trim = TRUE), "%"))
  if (missing(parm)) table else table[parm, , drop = FALSE]
}

interval_names <- function(fit) sub("^\\(intercept\\)$", "(Intercept)", fit$intervals$name)

print.tulle_fit <- function(x, n = 10, ...) {
  cat_about(x)
  values <- coef(x)
  cat("\n", describe_coefficients(x), ":\n", sep = "")
  shown <- head(values, n + 1)
  print(shown, ...)
  left <- NROW(values) - NROW(shown)
  if (left > 0) cat("... and", format(left, big.mark = ","), "more: see coef()\n")
  invisible(x)
}

cat_about <- function(x) {
  shown <- paste(deparse(x$formula, width.cutoff = 500), collapse = " ")
  cat("Private sparse model: ", shown, "\n", sep = "")
  cat("Family ", x$family, ", ", format(x$n_rows, big.mark = ","), " rows, ", format(x$n_features, big.mark = ","),
      " features.\n", sep = "")
  cat(x$proved, "\n", sep = "")
  if (isTRUE(x$privacy$seeded)) {
    cat("The noise came from a seed: no guarantee against anyone who knows or guesses it.\n")
  }
}

describe_coefficients <- function(x) {
  unit <- if ("weight_per_unit" %in% names(x$weights)) "one unit of a column" else "encoded features"
  of <- if (x$family == "binomial") paste0(" of '", x$levels[2], "'") else ""
  paste0("Largest weights", of, ", for ", unit)
}

summary.tulle_fit <- function(object, ...) {
  table <- object$intervals
  if (!is.null(table)) {
    table <- as.matrix(table[c(interval_columns, "p_value", "privacy_share")])
    dimnames(table) <- list(interval_names(object), c("Estimate", "Std. Error", "Low", "High", "p-value", "Privacy"))
  }
  kept <- c("formula", "family", "levels", "n_rows", "n_features", "proved", "privacy", "weights", "level", "notes")
  structure(c(unclass(object)[kept], list(
    coefficients = if (is.null(table)) as.matrix(coef(object)) else table,
    has_intervals = !is.null(table), bill = tulle_bill(object)
  )), class = "summary.tulle_fit")
}

print.summary.tulle_fit <- function(x, digits = 4, ...) {
  cat_about(x)
  if (x$has_intervals) {
    cat("\nCoefficients, with ", 100 * x$level, " % intervals:\n", sep = "")
    print(x$coefficients, digits = digits, na.print = "-", ...)
    cat(paste0(x$notes, "\n"), sep = "")
  } else {
    cat("\n", describe_coefficients(x), ":\n", sep = "")
    table <- x$coefficients
    if (ncol(table) == 1) colnames(table) <- "Estimate"
    print(table, digits = digits, ...)
    cat("No standard errors: fit with intervals = TRUE for them.\n")
  }
  cat("\nBill:\n")
  print(x$bill)
  cat("\nAssumptions:\n")
  for (line in unlist(x$privacy$assumptions)) cat(strwrap(line, initial = "- ", prefix = "  "), sep = "\n")
  invisible(x)
}

plot.tulle_fit <- function(x, n = 20, encoded = TRUE, class = NULL, main = NULL, xlab = NULL, ...) {
  values <- coef(x, encoded = encoded)
  if (is.matrix(values)) {
    if (is.null(class)) class <- x$levels[1]
    if (!class %in% x$levels) tulle_stop(paste0("class must be one of ", quoted(x$levels)))
    values <- values[, class]
  }
  values <- values[names(values) != "(Intercept)"]
  values <- values[order(-abs(values))]
  if (!length(values)) tulle_stop("the model has no weights to plot")
  values <- rev(head(values, n))
  ends <- NULL
  if (!encoded && !is.null(x$intervals)) ends <- confint(x)[names(values), , drop = FALSE]
  seen <- c(0, values, ends[is.finite(ends)])
  # Many devices cannot draw Greek letters.
  if (is.null(main)) main <- gsub("\u03c1", "rho", gsub("\u03b4", "delta", gsub("\u03b5", "epsilon", x$proved)))
  if (is.null(xlab)) xlab <- if (encoded) "weight of an encoded feature" else "weight of one unit of the column"
  dotchart(values, xlim = range(seen), pch = 19, main = main, xlab = xlab, ...)
  abline(v = 0, lty = 3)
  if (!is.null(ends)) {
    ends <- pmin(pmax(ends, min(seen)), max(seen)) # an open end goes to the edge
    segments(ends[, 1], seq_along(values), ends[, 2], seq_along(values))
  }
  invisible(values)
}

tulle_bill <- function(fit) {
  check_fit(fit)
  bill <- read_lines(fit$privacy$bill, c("release", "mechanism", "count", "noise_per_sensitivity", "epsilon_alone"))
  structure(bill, class = c("tulle_bill", "data.frame"), proved = fit$proved)
}

print.tulle_bill <- function(x, ...) {
  shown <- as.data.frame(unclass(x)[names(x)])
  shown$epsilon_alone <- round_up(shown$epsilon_alone)
  shown$noise_per_sensitivity <- format(shown$noise_per_sensitivity, digits = 4)
  print(shown, row.names = FALSE, right = FALSE, ...)
  if (!is.null(attr(x, "proved"))) cat(attr(x, "proved"), "\n", sep = "")
  invisible(x)
}

# Text of a few significant digits, never below the value: a printed epsilon must not be smaller than the proof.
round_up <- function(values, digits = 5) {
  vapply(values, function(value) {
    if (is.na(value) || !is.finite(value) || value <= 0) return(format(value))
    text <- sprintf("%.*g", digits, value)
    step <- 10^(floor(log10(value)) - digits + 1)
    raised <- ceiling(value / step)
    while (as.numeric(text) < value) {
      text <- sprintf("%.*g", digits, raised * step)
      raised <- raised + 1
    }
    text
  }, "")
}

check_fit <- function(fit) {
  if (!inherits(fit, "tulle_fit")) tulle_stop("this is no model that tulle_fit returned")
}
