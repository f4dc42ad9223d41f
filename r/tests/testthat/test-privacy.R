test_that("nothing of the rows is in a fit: not by the call, the formula's environment or an argument", {
  skip_without_tulle()
  marked <- visits
  marked$region <- as.character(marked$region)
  marked$region[4] <- "CANARY"
  fit_here <- function(secret) {
    again <- "CANARY"
    do.call(tulle_fit, list(
      again ~ age + region, data = secret, epsilon = 1, family = "binomial", ranges = known,
      levels = c(regions, list(again = c("no", "yes")))
    ))
  }
  fit <- fit_here(marked)
  expect_true(contains(serialize(marked, NULL), "CANARY"))
  expect_false(contains(serialize(fit, NULL), "CANARY"))
  expect_false(contains(serialize(summary(fit), NULL), "CANARY"))
  expect_null(fit$ledger)
  # Neither do errors quote the call.
  error <- tryCatch(do.call(tulle_fit, list(again ~ log(age), data = marked, epsilon = 1)), error = identity)
  expect_s3_class(error, "tulle_error")
  expect_null(conditionCall(error))
  expect_false(contains(serialize(error, NULL), "CANARY"))
})

test_that("files of rows are for this user alone, and deleted, also after an error", {
  seen <- tempfile()
  before <- list.files(tempdir(), all.files = TRUE)
  fake <- fake_tulle(
    paste0("stat -c '%a %F' \"$2\" \"$(dirname \"$2\")\" \"$(dirname \"$2\")/schema.toml\" > ", seen),
    paste0("echo \"$2\" >> ", seen), paste0("cat \"$2\" >> ", seen),
    "echo '{\"error\": {\"kind\": \"spent\", \"message\": \"lost\", \"exit_code\": 4}}'; exit 4"
  )
  old <- Sys.umask("022")
  on.exit(Sys.umask(old))
  error <- with_tulle(fake, tryCatch(fit_again(), tulle_error = identity))
  expect_s3_class(error, "tulle_error_spent")
  expect_identical(error$exit_code, 4L)
  said <- readLines(seen)
  expect_identical(said[1:3], c("600 regular file", "700 directory", "600 regular file"))
  expect_identical(basename(said[4]), "data")
  expect_identical(tulle:::rows_name(quote(visits)), "visits")
  expect_false(file.exists(said[4]))
  expect_false(dir.exists(dirname(said[4])))
  # Columns that the formula does not name are not written; cells are quoted.
  expect_identical(said[5], "\"age\",\"region\",\"smoker\",\"bmi\",\"again\"")
  expect_length(said, 5 + nrow(visits))
  expect_true(any(grepl("\"west, far \"\"out\"\"\"", said, fixed = TRUE)))
  expect_setequal(list.files(tempdir(), all.files = TRUE), c(before, basename(c(seen, fake))))
  expect_identical(Sys.umask(), as.octmode("022"))

  # So they are when R itself fails in between.
  broken <- fake_tulle(paste0("echo \"$2\" > ", seen), "echo '{\"ledger\": \"\"}'")
  expect_error(with_tulle(broken, fit_again()))
  expect_false(file.exists(readLines(seen)))
})

test_that("a model that was paid for is kept if the command fails after writing it", {
  fake <- fake_tulle(
    "for word in \"$@\"; do case $word in --output=*) out=${word#--output=};; esac; done",
    "mkdir \"$out\"; printf paid > \"$out/model.npz\"",
    "echo '{\"error\": {\"kind\": \"spent\", \"message\": \"The disk is full.\", \"exit_code\": 4}}'; exit 4"
  )
  error <- with_tulle(fake, tryCatch(fit_again(), tulle_error = identity))
  expect_identical(error$exit_code, 4L)
  kept <- sub("^.* The model is kept in (.*) until this session of R ends\\.$", "\\1", conditionMessage(error))
  expect_identical(readLines(kept, warn = FALSE), "paid")
})

test_that("nothing of the data becomes a declaration", {
  levels_only <- list(again = c("no", "yes"))
  refused <- function(...) tryCatch(tulle_fit(again ~ age + region, data = visits, epsilon = 1, family = "binomial", ...), error = identity)
  # Factors have levels and numbers have ranges: both are asked for.
  error <- refused(levels = levels_only)
  expect_match(conditionMessage(error), "not declared: 'age', 'region'", fixed = TRUE)
  expect_false(grepl("west", conditionMessage(error)))
  error <- refused(ranges = known, levels = regions)
  expect_match(conditionMessage(error), "declare the response", fixed = TRUE)
  expect_false(grepl("yes", sub("c\\(\"no\", \"yes\"\\)", "", conditionMessage(error))))
  # The schema is the same for other rows, types and levels.
  lines <- function(data) {
    seen <- tempfile()
    fake <- fake_tulle(paste0("cp \"$(dirname \"$2\")/schema.toml\" ", seen), "echo '{\"error\": {\"kind\": \"input\", \"message\": \"\", \"exit_code\": 2}}'; exit 2")
    with_tulle(fake, try(fit_again(data = data), silent = TRUE))
    readLines(seen)
  }
  other <- visits[1:10, ]
  other$region <- "elsewhere"
  other$age <- "1000"
  other$again <- factor(1:10)
  expect_identical(lines(other), lines(visits))
  expect_identical(lines(visits)[1:3], c("[columns]", "\"age\" = { \"range\" = [18, 95] }", "\"region\" = { \"categories\" = [\"n\", \"s\"] }"))
})

test_that("declarations that are computed from the data warn", {
  fake <- fake_tulle("echo '{\"error\": {\"kind\": \"input\", \"message\": \"\", \"exit_code\": 2}}'; exit 2")
  told <- function(code) {
    found <- character()
    with_tulle(fake, withCallingHandlers(try(code, silent = TRUE), tulle_warning = function(warning) {
      found <<- c(found, conditionMessage(warning))
      invokeRestart("muffleWarning")
    }))
    found
  }
  expect_match(told(tulle_fit(age ~ region, visits, 1, ranges = list(age = range(visits$age)), levels = regions)),
               "^ranges is computed from 'visits'")
  expect_match(told(tulle_fit(age ~ region, visits, 1, ranges = known, levels = list(region = levels(visits$region)))),
               "^levels is computed from 'visits'")
  expect_length(told(tulle_fit(age ~ region, visits, 1, ranges = known, levels = regions)), 0)
})

test_that("levels of a factor that are not declared count as none of them", {
  skip_without_tulle()
  fit <- usual_fit()
  other <- visits[c(1:6, 1:6), ]
  other$region <- factor(rep(c("west, far \"out\"", "never seen"), each = 6))
  found <- predict(fit, other, type = "link")
  expect_identical(found[1:6], found[7:12])
  expect_setequal(grep("region", names(coef(fit)), value = TRUE), c("region = n", "region = s"))
})
