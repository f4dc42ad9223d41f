test_that("the command is found by option, by variable or on the path; otherwise it is said how to install it", {
  nowhere <- file.path(tempdir(), "nowhere")
  error <- tryCatch(with_tulle(nowhere, tulle_path()), error = identity)
  expect_s3_class(error, "tulle_error_missing_command")
  expect_match(conditionMessage(error), "the option tulle.path names .*nowhere.*pip install")
  with_tulle(nowhere, expect_false(tulle_available()))
  fake <- fake_tulle("exit 0")
  expect_identical(with_tulle(fake, tulle_path()), fake)
  variables <- Sys.getenv(c("TULLE", "PATH"), names = TRUE)
  on.exit(do.call(Sys.setenv, as.list(variables)))
  Sys.setenv(TULLE = fake)
  expect_identical(with_tulle("", tulle_path()), fake)
  Sys.unsetenv("TULLE")
  Sys.setenv(PATH = tempdir())
  expect_error(with_tulle("", tulle_path()), "the command tulle was not found.*pip install", class = "tulle_error")
})

test_that("another program and an older version are refused", {
  other <- tempfile()
  writeLines(c("#!/bin/sh", "echo something"), other)
  Sys.chmod(other, "0755")
  expect_error(with_tulle(other, tulle_path()), "does not run as tulle does", class = "tulle_error_missing_command")
  old <- tempfile()
  writeLines(c("#!/bin/sh", "echo tulle 0.1.0"), old)
  Sys.chmod(old, "0755")
  expect_error(with_tulle(old, tulle_path()), "needs 0.2.0 or later", class = "tulle_error_missing_command")
})

test_that("errors and warnings of the command are those of R, and standard error is not shown", {
  fake <- fake_tulle(
    "echo 'row 17 is odd' >&2",
    "echo '{\"warnings\": [\"epsilon is large\"], \"error\": {\"kind\": \"refused\", \"message\": \"over the cap\", \"exit_code\": 3}}'",
    "exit 3"
  )
  told <- NULL
  error <- with_tulle(fake, withCallingHandlers(tryCatch(fit_again(), error = identity), warning = function(warning) {
    told <<- warning
    invokeRestart("muffleWarning")
  }))
  expect_s3_class(told, "tulle_warning")
  expect_identical(conditionMessage(told), "epsilon is large")
  expect_s3_class(error, c("tulle_error_refused", "tulle_error", "error", "condition"), exact = TRUE)
  expect_identical(error$exit_code, 3L)
  expect_identical(conditionMessage(error), "over the cap")
  silent <- fake_tulle("echo 'cell 42' >&2; exit 9")
  error <- with_tulle(silent, tryCatch(fit_again(), error = identity))
  expect_s3_class(error, "tulle_error_no_answer")
  expect_identical(error$exit_code, NA_integer_)
  expect_false(grepl("42", conditionMessage(error)))
  # A signal is no exit code: 2 would say that nothing was spent.
  killed <- fake_tulle("kill -INT $$")
  error <- with_tulle(killed, tryCatch(fit_again(), error = identity))
  expect_identical(error$exit_code, NA_integer_)
  expect_match(conditionMessage(error), "its budget is spent")
  answered <- fake_tulle("echo '{\"error\": {\"kind\": \"interrupted\", \"message\": \"stopped\", \"exit_code\": 130}}'; kill -INT $$")
  error <- with_tulle(answered, tryCatch(fit_again(), error = identity))
  expect_identical(error$exit_code, 130L)
})

test_that("wrong input is explained by the command, without paths of temporary files", {
  skip_without_tulle()
  error <- tryCatch(tulle_fit(cost ~ age, visits, 1, ranges = list(age = c(95, 18), cost = c(0, 1))), error = identity)
  expect_s3_class(error, "tulle_error_input")
  expect_identical(error$exit_code, 2L)
  expect_match(conditionMessage(error), "^schema.toml: 'age': range must be two finite numbers")
})

test_that("a ledger bills a fit, and refuses one that would exceed the cap", {
  skip_without_tulle()
  budget <- file.path(tempfile("ledger"))
  tulle_ledger_open(budget, "visits 2026", epsilon = 2.5, delta = 1e-5)
  expect_error(tulle_ledger_open(budget, "visits 2026", epsilon = 9, delta = 1e-5), class = "tulle_error_input")
  expect_message(fit <- fit_again(ledger = budget, dataset = "visits 2026", by = "A. Smith", purpose = "call-back list"), "Ledger: visits 2026")
  spent <- tulle_ledger_show(budget)
  expect_identical(spent$entries$analyst, "A. Smith")
  expect_identical(spent$entries$epsilon, fit$privacy$epsilon)
  expect_identical(spent$caps$epsilon_cap, 2.5)
  expect_output(print(spent), "not for release")
  error <- tryCatch(fit_again(ledger = budget, dataset = "visits 2026"), error = identity)
  expect_s3_class(error, "tulle_error_refused")
  expect_identical(error$exit_code, 3L)
  expect_identical(nrow(tulle_ledger_show(budget, "visits 2026")$entries), 1L)
  # The ledger's words stay out of the object; the number and head of the entry are in every report.
  expect_false(contains(serialize(fit, NULL), "is spent"))
  bill <- tulle_bill(fit)
  expect_s3_class(bill, "data.frame")
  expect_gt(nrow(bill), 0)
  expect_output(print(bill), "Proved: ")
})
