# The command `tulle`: where it is, and how it is run.

found_versions <- new.env(parent = emptyenv())
needed_version <- "0.2.0"

tulle_path <- function() {
  named <- c("the option tulle.path" = getOption("tulle.path", ""), "the variable TULLE" = Sys.getenv("TULLE"))
  given <- named[nzchar(named)]
  path <- if (length(given)) Sys.which(given[[1]])[[1]] else Sys.which("tulle")[[1]]
  if (!nzchar(path)) {
    why <- if (length(given)) paste0(names(given)[1], " names ", given[[1]], ", which is no command") else
      "the command tulle was not found"
    tulle_stop(paste0(
      why, ". Install it with Python 3.11 or later: run `pip install .` in a clone of tulle's repository. Then say where ",
      "it is, if it is not on the PATH: options(tulle.path = \"/path/to/bin/tulle\"), or the environment variable TULLE."
    ), "missing_command")
  }
  if (is.null(found_versions[[path]])) found_versions[[path]] <- read_version(path)
  path
}

tulle_available <- function() !inherits(try(tulle_path(), silent = TRUE), "try-error")

# No rows are involved: what the command says may be shown.
read_version <- function(path) {
  said <- suppressWarnings(system2(path, "--version", stdout = TRUE, stderr = TRUE))
  last <- if (length(said)) said[[length(said)]] else ""
  if (!is.null(attr(said, "status")) || !grepl("^tulle [0-9]+(\\.[0-9]+)+", last)) {
    tulle_stop(paste0(path, " does not run as tulle does: ", last), "missing_command")
  }
  version <- sub("^tulle ([0-9]+(\\.[0-9]+)+).*$", "\\1", last)
  if (utils::compareVersion(version, needed_version) < 0) {
    tulle_stop(paste0(path, " is tulle ", version, "; this package needs ", needed_version, " or later"), "missing_command")
  }
  version
}

# Runs a command with --json and returns its values. Its warnings become warnings of R, its errors errors of R. What it
# prints to standard error can name a row of a file, is for a screen alone, and goes into a file that is deleted.
run_tulle <- function(words, folder, simplify = FALSE) {
  path <- tulle_path()
  out <- file.path(folder, "stdout.json")
  words <- c(words, "--json")
  code <- suppressWarnings(system2(path, shQuote(words), stdout = out, stderr = file.path(folder, "stderr.txt")))
  values <- tryCatch(fromJSON(out, simplifyVector = simplify), error = function(error) NULL)
  shown <- function(text) gsub(paste0(folder, "/"), "", text, fixed = TRUE)
  for (text in unlist(values$warnings)) tulle_warn(shown(text))
  # The status of a process that a signal ended is the number of the signal in R: 2 is no wrong input then.
  if (!is.null(values$error)) tulle_stop(shown(values$error$message), values$error$kind, as.integer(values$error$exit_code))
  if (code > 1 || is.null(values)) {
    tulle_stop(paste0(
      "tulle ", words[[1]], " ended without an answer, as when it is killed (status ", code, "). If it had begun to draw ",
      "noise, its budget is spent; a ledger says whether it was billed"
    ), "no_answer")
  }
  values
}

# --name=value for each value; TRUE is --name by itself, NULL and FALSE are left out. A value after "=" may begin with "-".
command_options <- function(values) {
  words <- lapply(names(values), function(name) {
    value <- values[[name]]
    option <- paste0("--", gsub("_", "-", name, fixed = TRUE))
    if (is.null(value) || identical(value, FALSE)) return(character())
    if (isTRUE(value)) return(option)
    if (is.list(value)) return(paste0(option, "=", vapply(value, option_text, "")))
    paste0(option, "=", option_text(value))
  })
  unlist(words)
}

option_text <- function(value) {
  text <- if (is.numeric(value)) number_text(value) else as.character(value)
  if (!is.null(names(value))) text <- paste0(names(value), "=", text)
  paste(text, collapse = ",")
}
