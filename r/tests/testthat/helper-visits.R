# Made-up visits, and the command as it is used without this package.

skip_without_tulle <- function() {
  if (Sys.getenv("TULLE_R") != "required" && !tulle_available()) skip("the command tulle was not found")
}

make_visits <- function(n = 600) {
  set.seed(1)
  age <- sample(18:95, n, TRUE)
  region <- factor(sample(c("n", "s", "west, far \"out\""), n, TRUE))
  risk <- (age - 55) / 20 + (region == "n")
  visits <- data.frame(
    id = rep(seq_len(n / 2), 2), age, region, smoker = stats::runif(n) < 0.3, bmi = stats::rnorm(n, 25, 3),
    again = ifelse(risk + stats::rnorm(n) > 0, "yes", "no"), cost = 2 * age + stats::rnorm(n), stringsAsFactors = FALSE
  )
  visits$stays <- stats::rpois(n, exp(risk / 2))
  visits$bmi[c(3, 5)] <- NA
  visits
}

visits <- make_visits()
known <- list(age = c(18, 95), bmi = c(10, 60))
regions <- list(region = c("n", "s"))

# A fit that several tests read; of the levels of `again` the second is "yes".
fit_again <- function(..., data = visits, formula = again ~ age + region + smoker + bmi, order = c("no", "yes")) {
  tulle_fit(formula, data = data, epsilon = 2, family = "binomial", ranges = known,
            levels = c(regions, list(again = order)), columns = list(smoker = "boolean"), seed = 7, ...)
}

# The same for all tests, which takes a few seconds only once.
usual_fit <- local({
  kept <- NULL
  function() {
    if (is.null(kept)) kept <<- fit_again()
    kept
  }
})

# Runs the command on a file and a schema that were written by other means, and returns its JSON.
run_plainly <- function(schema, ..., data = visits) {
  folder <- tempfile("plain")
  dir.create(folder)
  path <- file.path(folder, "visits.csv")
  utils::write.csv(format_exactly(data), path, row.names = FALSE, na = "")
  writeLines(schema, file.path(folder, "schema.toml"))
  words <- c("fit", path, "--schema", file.path(folder, "schema.toml"), ..., "-o", file.path(folder, "m"), "--json")
  out <- system2(tulle_path(), shQuote(words), stdout = TRUE, stderr = FALSE)
  c(jsonlite::fromJSON(out, simplifyVector = FALSE), list(folder = folder, rows = path))
}

format_exactly <- function(data) {
  doubles <- vapply(data, is.double, NA)
  data[doubles] <- lapply(data[doubles], function(column) ifelse(is.na(column), NA, sprintf("%.17g", column)))
  data
}

weights_of <- function(values, of = "weight") {
  stats::setNames(vapply(values$weights, function(line) line[[of]], 0), vapply(values$weights, function(line) line$feature, ""))
}

schema_again <- "[columns]
age = { range = [18, 95] }
region = { categories = [\"n\", \"s\"] }
smoker = \"boolean\"
bmi = { range = [10, 60] }
\"*\" = \"ignore\"
[target]
column = \"again\"
classes = [\"no\", \"yes\"]"

# A command that writes down what it finds, and then does as the lines of shell say.
fake_tulle <- function(...) {
  path <- tempfile("fake-tulle")
  writeLines(c("#!/bin/sh", "if [ \"$1\" = --version ]; then echo tulle 99.0; exit 0; fi", ...), path)
  Sys.chmod(path, "0755")
  path
}

with_tulle <- function(path, code) {
  before <- options(tulle.path = path)
  on.exit(options(before))
  force(code)
}

contains <- function(bytes, text) grepl(text, rawToChar(bytes[bytes != 0]), fixed = TRUE, useBytes = TRUE)
