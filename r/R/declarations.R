# The formula and the declared columns, and the schema file that they make. Everything here is public: it is made from
# what the caller wrote and from the names of the columns, never from cells, types or levels of the data.

read_formula <- function(formula, header, left_out) {
  if (!inherits(formula, "formula") || length(formula) != 3) {
    tulle_stop("formula must have two sides, such as readmitted ~ age + region")
  }
  if (anyDuplicated(header)) tulle_stop(paste0("the data has several columns named ", quoted(unique(header[duplicated(header)]))))
  # A frame without rows: terms() needs the names alone, for the dot.
  usable <- setdiff(header, left_out)
  frame <- setNames(rep(list(logical()), length(usable)), usable)
  found <- tryCatch(terms(formula, data = as.data.frame(frame, optional = TRUE)), error = function(error) {
    tulle_stop(paste0("the formula cannot be read: ", conditionMessage(error)))
  })
  variables <- as.list(attr(found, "variables"))[-1]
  written <- vapply(variables, function(variable) paste(deparse(variable), collapse = " "), "")
  derived <- written[!vapply(variables, is.name, NA)]
  if (any(grepl("^(survival::)?Surv\\(", derived))) tulle_stop(no_survival)
  derived <- c(derived, attr(found, "term.labels")[attr(found, "order") > 1])
  if (length(derived)) {
    tulle_stop(paste0(
      "the formula must name columns only, and ", quoted(derived), " is no column. Make such a column in the data frame, ",
      "each row from its own cells (a mean or a standard deviation over rows is not covered by the guarantee), and declare it"
    ))
  }
  names <- vapply(variables, as.character, "")
  response <- names[[attr(found, "response")]]
  factors <- attr(found, "factors")
  features <- if (length(factors)) names[rowSums(factors) > 0] else character()
  absent <- setdiff(c(response, features), header)
  if (length(absent)) tulle_stop(paste0("the data has no column named ", quoted(absent)))
  if (!length(features)) tulle_stop("the formula needs at least one column on its right side")
  list(response = response, features = features, intercept = attr(found, "intercept") == 1)
}

no_survival <- paste(
  "the command tulle fits no survival models: use tulle.survival in Python, or a 0/1 column such as",
  "event-within-a-year with family = \"binomial\""
)

read_family <- function(family) {
  links <- c(binomial = "logit", gaussian = "identity", poisson = "log")
  if (is.function(family)) family <- family()
  if (inherits(family, "family")) {
    if (!identical(links[family$family][[1]], family$link)) {
      tulle_stop(paste0("family ", family$family, " with link ", family$link, " is not offered"))
    }
    family <- family$family
  }
  known <- c(names(links), "multinomial")
  if (identical(family, "cox")) tulle_stop(no_survival)
  if (!is.character(family) || length(family) != 1 || !family %in% known) {
    tulle_stop(paste0("family must be one of ", quoted(known)))
  }
  family
}

# All declared columns by name. A list of declarations may name columns that the formula does not use, as a data
# dictionary does.
collect_columns <- function(ranges, levels, columns) {
  for (what in c("ranges", "levels", "columns")) {
    given <- get(what)
    if (!is.list(given) || (length(given) && (is.null(names(given)) || !all(nzchar(names(given)))))) {
      tulle_stop(paste0(what, " must be a list with the names of columns"))
    }
  }
  declared <- c(
    lapply(ranges, function(range) list(range = as.numeric(range))),
    lapply(levels, function(values) list(categories = I(if (is.numeric(values)) as.vector(values) else as.character(values)))),
    columns
  )
  twice <- unique(names(declared)[duplicated(names(declared))])
  if (length(twice)) tulle_stop(paste0("declared twice: ", quoted(twice)))
  declared
}

check_declared <- function(declared, features) {
  absent <- setdiff(features, names(declared))
  if (length(absent)) {
    tulle_stop(paste0(
      "not declared: ", quoted(absent), ". Declare each column by what you know without looking at the rows: ranges = ",
      "list(age = c(0, 120)), levels = list(region = c(\"n\", \"s\")), or columns = list(smoker = \"boolean\"). Levels of a ",
      "factor and ranges of numbers are never taken from the data: they would be published with the model"
    ))
  }
  starred <- grep("*", features, fixed = TRUE, value = TRUE)
  if (length(starred)) tulle_stop(paste0("a star in a name stands for any text in a schema; rename ", quoted(starred)))
}

# The target as a schema declares it.
declare_target <- function(response, declared, family) {
  own <- declared[[response]]
  is_regression <- family %in% c("gaussian", "poisson")
  needed <- if (is_regression) "range" else "categories"
  if (!is.list(own) || !identical(names(own), needed)) {
    form <- if (is_regression) "ranges = list(%s = c(LOW, HIGH))" else "levels = list(%s = c(\"no\", \"yes\"))"
    tulle_stop(sprintf(paste0("declare the response for family = \"%s\": ", form, ", known without looking at the rows"), family, response))
  }
  if (is_regression) return(list(column = response, range = own$range))
  count <- length(own$categories)
  if (family == "binomial" && count != 2) {
    tulle_stop(paste0("family = \"binomial\" needs two levels of '", response, "', not ", count, "; more are family = \"multinomial\""))
  }
  list(column = response, classes = own$categories)
}

# A warning for declarations that mention the data by its name, such as levels = list(region = levels(visits$region)).
# It depends on the code of the call alone.
warn_of_data <- function(data, expressions) {
  # Of an expression such as visits[train, ] every variable may hold rows.
  holders <- all.vars(data)
  for (what in names(expressions)) {
    used <- intersect(holders, all.names(expressions[[what]]))
    if (length(used) > 0) {
      tulle_warn(paste0(
        what, " is computed from '", used[[1]], "': what it takes from the rows is published with the model, and no ",
        "epsilon covers it. Write down what you know without looking at the rows"
      ))
    }
  }
}

schema_lines <- function(features, declared, target, person, ignored, ignore_others) {
  column_lines <- vapply(features, function(name) paste(toml_text(name), "=", toml_value(declared[[name]])), "")
  ignored_lines <- vapply(ignored, function(name) paste(toml_text(name), "= \"ignore\""), "")
  c(
    "[columns]", column_lines, ignored_lines, if (ignore_others) "\"*\" = \"ignore\"",
    "[target]", table_lines(target),
    if (!is.null(person)) c("[person]", table_lines(person))
  )
}

table_lines <- function(values) vapply(names(values), function(name) paste(name, "=", toml_value(values[[name]])), "")

# Vectors of one value are that value; I(...) keeps them arrays.
toml_value <- function(value) {
  if (is.list(value) && !is.null(names(value))) {
    return(paste0("{ ", paste(vapply(names(value), toml_text, ""), "=", vapply(value, toml_value, ""), collapse = ", "), " }"))
  }
  if (inherits(value, "Date")) value <- format(value)
  if (is.factor(value)) value <- as.character(value)
  if (is.list(value) || inherits(value, "AsIs") || length(value) != 1) {
    return(paste0("[", paste(vapply(as.list(unclass(value)), toml_value, ""), collapse = ", "), "]"))
  }
  if (is.character(value) && !is.na(value)) return(toml_text(value))
  if (is.logical(value) && !is.na(value)) return(if (value) "true" else "false")
  if (is.numeric(value) && is.finite(value)) return(number_text(value))
  tulle_stop("declared values must be finite numbers, text, TRUE or FALSE, dates, or lists of these")
}

toml_text <- function(text) {
  text <- gsub("\\", "\\\\", enc2utf8(text), fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  for (code in c(1:31, 127)) text <- gsub(intToUtf8(code), sprintf("\\u%04X", code), text, fixed = TRUE)
  paste0("\"", text, "\"")
}
