predict.tulle_fit <- function(object, newdata, type = c("response", "class", "link"), ...) {
  type <- match.arg(type)
  if (missing(newdata)) tulle_stop("pass newdata: the model holds no rows, and so no fitted values")
  if (type == "class" && is.null(object$levels)) tulle_stop("type = \"class\" is for classes; this is a regression")
  called <- substitute(newdata)
  with_private_folder(function(folder) {
    model <- file.path(folder, "model.npz")
    writeBin(object$model, model)
    rows <- write_new_rows(object, newdata, rows_name(called), folder)
    asked <- if (!is.null(object$levels)) switch(type, response = "--probabilities", link = "--margins")
    values <- run_tulle(c("predict", model, rows, asked), folder, simplify = TRUE)
    read_predictions(object, values, type)
  })
}

# The path of the new rows, and what must be said of how they are written.
write_new_rows <- function(fit, newdata, name, folder) {
  if (is.character(newdata) && length(newdata) == 1) return(normalizePath(newdata, mustWork = FALSE))
  if (!is.data.frame(newdata)) tulle_stop("newdata must be a data frame, or the path of a CSV or Parquet file")
  features <- all.vars(fit$formula[[3]])
  absent <- setdiff(features, names(newdata))
  if (length(absent)) tulle_stop(paste0("newdata has no column named ", quoted(absent)))
  if (!nrow(newdata)) tulle_stop("newdata has no rows")
  path <- file.path(folder, name)
  # One column of blank cells would be blank lines, which are no rows.
  cells <- c(lapply(setNames(nm = features), function(name) newdata[[name]]), list("(row)" = rep("", nrow(newdata))))
  write_rows(cells, c(fit$columns[features], list("(row)" = "text")), path)
  c(path, "--format=csv", "--delimiter=,")
}

read_predictions <- function(fit, values, type) {
  if (is.null(fit$levels)) {
    return(if (type == "link" && fit$family == "poisson") log(values$prediction) else values$prediction)
  }
  if (type == "class") return(factor(fit$labels[match(values$prediction, fit$sorted_classes)], levels = fit$levels))
  if (type == "link" && length(fit$levels) == 2) {
    return(if (fit$labels[2] == fit$levels[2]) values$margin else -values$margin)
  }
  # Columns come in the order of the command's classes, after the number of rows and the prediction.
  prefix <- if (type == "link") "margin_" else "probability_"
  table <- do.call(cbind, unname(values[startsWith(names(values), prefix)]))
  colnames(table) <- fit$labels
  if (length(fit$levels) == 2) table[, fit$levels[2]] else table[, fit$levels, drop = FALSE]
}
