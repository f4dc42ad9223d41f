# Errors and warnings. They carry no call: a call may hold the data frame itself, and R prints calls.

tulle_stop <- function(message, kind = "input", exit_code = NA_integer_) {
  classes <- c(paste0("tulle_error_", kind), "tulle_error", "error", "condition")
  stop(structure(list(message = message, call = NULL, kind = kind, exit_code = exit_code), class = classes))
}

tulle_warn <- function(message) {
  warning(structure(list(message = message, call = NULL), class = c("tulle_warning", "warning", "condition")))
}

quoted <- function(names) paste0("'", names, "'", collapse = ", ")
