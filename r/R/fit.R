# Options of `tulle fit` that are passed on as they are.
further_options <- c(
  "always", "calibration", "class_weight", "group", "label_bound", "ledger_authority", "ledger_certificate", "ledger_key",
  "loss", "method", "normalise", "private_weights", "public", "row_l2", "row_linf", "title", "witness"
)

tulle_fit <- function(formula, data, epsilon, delta = NULL, family = "gaussian", ranges = list(), levels = list(),
                      columns = list(), person = NULL, rows_per_person = 1, weights = NULL, n_nonzero = NULL,
                      intervals = FALSE, rho = NULL, ledger = NULL, dataset = NULL, by = NULL, purpose = NULL,
                      seed = NULL, output = NULL, replace = FALSE, ...) {
  called <- substitute(data)
  warn_of_data(called, list(ranges = substitute(ranges), levels = substitute(levels), columns = substitute(columns)))
  family <- read_family(family)
  if (missing(epsilon) == is.null(rho)) tulle_stop("pass epsilon, or rho instead of it")
  budget <- if (is.null(rho)) list(epsilon = check_budget(epsilon)) else list(rho = rho)
  further <- check_further(list(...))
  declared <- collect_columns(ranges, levels, columns)
  with_private_folder(function(folder) {
    further_columns <- unique(c(person, weights))
    read <- read_formula(formula, header_of(data, folder), further_columns)
    check_declared(declared, read$features)
    target <- declare_target(read$response, declared, family)
    of_person <- if (!is.null(person)) list(column = person, rows = rows_per_person)
    is_file <- is.character(data)
    schema <- file.path(folder, "schema.toml")
    lines <- schema_lines(read$features, declared, target, of_person, setdiff(weights, person), is_file)
    write_private(lines, schema)
    rows <- if (is_file) normalizePath(data, mustWork = FALSE) else file.path(folder, rows_name(called))
    if (!is_file) {
      settings <- declared[read$features]
      settings[[read$response]] <- declared[[read$response]]
      settings[further_columns] <- "text"
      write_rows(data, settings, rows)
    }
    place <- if (is.null(output)) file.path(folder, "model") else path.expand(output)
    options <- command_options(c(budget, list(
      schema = schema, delta = delta, sample_weight = weights, n_nonzero = n_nonzero, intervals = isTRUE(intervals),
      no_intercept = !read$intercept, ledger = ledger, dataset = dataset, by = by, purpose = purpose, seed = seed,
      replace = isTRUE(replace), output = place
    ), if (family == "poisson") list(loss = "poisson"), further))
    as_csv <- if (!is_file) c("--format=csv", "--delimiter=,")
    values <- withCallingHandlers(
      run_tulle(c("fit", rows, as_csv, options), folder),
      tulle_error = function(error) keep_model(error, file.path(place, "model.npz"), is.null(output))
    )
    # A ledger's words are not for release, and a fitted model is: they are shown, and not kept in it.
    if (nzchar(values$ledger)) message("Ledger: ", values$ledger)
    make_fit(values, read, declared, family, person, weights)
  })
}

check_budget <- function(epsilon) {
  if (identical(epsilon, "none")) return(epsilon)
  if (!is.numeric(epsilon) || length(epsilon) != 1 || is.na(epsilon)) {
    tulle_stop("epsilon must be one number above 0, or \"none\" for a fit without privacy")
  }
  epsilon
}

check_further <- function(given) {
  wrong <- if (length(given)) setdiff(c(names(given), if (is.null(names(given))) ""), further_options)
  if (length(wrong)) {
    tulle_stop(paste0("unknown arguments: ", quoted(wrong), "; options of tulle fit that can be passed: ", quoted(further_options)))
  }
  if (identical(given$private_weights, FALSE)) {
    given$private_weights <- NULL
    given$no_private_weights <- TRUE
  }
  given
}

header_of <- function(data, folder) {
  if (is.data.frame(data)) return(names(data))
  if (!is.character(data) || length(data) != 1) tulle_stop("data must be a data frame, or the path of a CSV or Parquet file")
  unlist(run_tulle(c("schema", normalizePath(data, mustWork = FALSE)), folder)$columns)
}

# The name of the rows in the report: that of the variable.
rows_name <- function(called) {
  name <- if (is.name(called)) gsub("[^A-Za-z0-9._-]", "_", as.character(called)) else "data"
  if (name %in% c("schema.toml", "model", "stdout.json", "stderr.txt", ".", "..")) "data" else name
}

# A fit that failed after its noise was drawn may have written its model, in a folder that is about to be deleted.
keep_model <- function(error, path, is_temporary) {
  if (!is_temporary || !file.exists(path)) return()
  kept <- tempfile("tulle-model-", fileext = ".npz")
  file.copy(path, kept)
  text <- paste0(conditionMessage(error), " The model is kept in ", kept, " until this session of R ends.")
  tulle_stop(text, error$kind, error$exit_code)
}

# What a fit releases, and nothing of the rows: no call, no environment, no data.
make_fit <- function(values, read, declared, family, person, weights) {
  symbols <- lapply(read$features, as.name)
  right <- Reduce(function(left, name) call("+", left, name), symbols)
  if (!read$intercept) right <- call("-", right, 1)
  expanded <- eval(call("~", as.name(read$response), right))
  environment(expanded) <- globalenv() # saved by its name; the caller's would be saved with all that it holds
  per_unit <- if (!is.null(values$intercepts[[1]]$intercept_per_unit)) "_per_unit"
  of_unit <- function(name) c(name, if (!is.null(per_unit)) paste0(name, per_unit))
  used <- values$intervals
  fit <- structure(list(
    formula = expanded, family = family, columns = declared[c(read$features, read$response)],
    person = person, weights_column = weights,
    n_rows = values$n_rows, n_features = values$n_features, proved = values$proved, privacy = values$privacy,
    weights = read_lines(values$weights, c("class", "feature", of_unit("weight"))),
    intercepts = read_lines(values$intercepts, c("class", of_unit("intercept"))),
    intervals = if (!is.null(used)) read_lines(used$weights, c("name", interval_columns, "p_value", "privacy_share")),
    level = used$level, notes = unlist(used$notes),
    model = readBin(values$model, "raw", file.size(values$model))
  ), class = "tulle_fit")
  if (is.null(values$classes)) fit else name_classes(fit, declared[[read$response]]$categories, unlist(values$classes))
}

interval_columns <- c("estimate", "standard_error", "low", "high")

# Objects of JSON as the rows of a data frame; open ends of intervals are words there.
read_lines <- function(lines, names) {
  columns <- lapply(names, function(name) {
    found <- lapply(lines, function(line) if (is.null(line[[name]])) NA else line[[name]])
    if (name %in% c("class", "feature", "name", "release", "mechanism")) vapply(found, as.character, "") else vapply(found, as.numeric, 0)
  })
  as.data.frame(setNames(columns, names), stringsAsFactors = FALSE, optional = TRUE)
}

# The command sorts classes. In R the order of the levels counts: a model of two classes is for the second level.
name_classes <- function(fit, levels, sorted) {
  fit$levels <- as.character(levels)
  fit$sorted_classes <- sorted # as the command predicts them
  fit$labels <- fit$levels[match(sorted, unclass(levels))] # the same in the words of the caller
  if (length(sorted) > 2) {
    own <- setNames(fit$labels, fit$intercepts$class)
    fit$weights$class <- unname(own[fit$weights$class])
    fit$intercepts$class <- unname(own[fit$intercepts$class])
  } else if (fit$labels[2] != fit$levels[2]) {
    for (name in grep("^weight", names(fit$weights), value = TRUE)) fit$weights[[name]] <- -fit$weights[[name]]
    for (name in grep("^intercept", names(fit$intercepts), value = TRUE)) fit$intercepts[[name]] <- -fit$intercepts[[name]]
    if (!is.null(fit$intervals)) {
      fit$intervals[c("estimate", "low", "high")] <- -fit$intervals[c("estimate", "high", "low")]
    }
  }
  fit
}
