cells <- function(column, settings = "text") tulle:::cell_text(column, settings, "x")

test_that("every cell is written by itself, and numbers can be read back exactly", {
  numbers <- c(0.1, 1 / 3, 1e300, -2.5e-8, 123456789, NA, Inf, 2^53 + 2)
  expect_identical(as.numeric(cells(numbers))[-c(6, 7)], numbers[-c(6, 7)])
  expect_identical(cells(numbers)[c(1, 5, 6)], c("0.1", "123456789", ""))
  before <- options(OutDec = ",")
  expect_identical(cells(c(0.5, NA)), c("0.5", ""))
  options(before)
  expect_identical(cells(c(1L, NA)), c("1", ""))
  expect_identical(cells(factor(c("b", NA, "a"), levels = c("z", "b", "a"))), c("b", "", "a"))
  expect_identical(cells(c(TRUE, NA), "boolean"), c("TRUE", ""))
  expect_identical(cells(c(TRUE, FALSE), list(range = c(0, 1))), c("1", "0"))
  expect_identical(cells(as.Date(c("2026-01-31", NA))), c("2026-01-31", ""))
  expect_identical(cells(as.Date("2026-01-31"), list(date = c("2000-01-01", "2030-01-01"), format = "%d.%m.%Y")), "31.01.2026")
  expect_identical(cells(as.POSIXct("2026-01-31 10:00:00", tz = "Europe/Paris")), "2026-01-31T09:00:00Z")
  expect_identical(cells(structure(c(1, 2), class = c("haven_labelled", "vctrs_vctr", "double"), labels = c(a = 1))), c("1", "2"))
  latin <- "caf\xe9"
  Encoding(latin) <- "latin1"
  wrong <- "x\xff"
  Encoding(wrong) <- "UTF-8"
  raw <- "y\xff"
  Encoding(raw) <- "bytes"
  expect_identical(cells(c(latin, wrong, raw)), c("caf\u00e9", "x<ff>", "y<ff>"))
  for (column in list(list(1, 2), matrix(1:4, 2), as.difftime(1, units = "days"), 1i)) {
    expect_error(cells(column), "the column 'x' is of class", class = "tulle_error")
  }
})

test_that("a schema is written so that TOML reads the same", {
  value <- tulle:::toml_value
  expect_identical(value(list(range = c(0, 1e6), missing = 0.1, indicator = TRUE)), "{ \"range\" = [0, 1000000], \"missing\" = 0.1, \"indicator\" = true }")
  expect_identical(value(I("a")), "[\"a\"]")
  expect_identical(value("boolean"), "\"boolean\"")
  expect_identical(value(list(c("ja", "j"), "nein")), "[[\"ja\", \"j\"], \"nein\"]")
  expect_identical(value(list(date = as.Date(c("2020-01-01", "2020-12-31")))), "{ \"date\" = [\"2020-01-01\", \"2020-12-31\"] }")
  expect_identical(tulle:::toml_text("a\"b\\c\nd</e>"), "\"a\\\"b\\\\c\\u000Ad</e>\"")
  for (wrong in list(Inf, NA, NA_character_, NULL, quote(x))) {
    if (is.null(wrong)) expect_identical(value(wrong), "[]") else expect_error(value(wrong), class = "tulle_error")
  }
})

test_that("a printed epsilon is never below the value", {
  set.seed(2)
  values <- c(10^stats::runif(2000, -12, 3), 0.99999949, 1, 9.99995, 123456.7)
  text <- tulle:::round_up(values)
  expect_true(all(as.numeric(text) >= values))
  expect_true(all(as.numeric(text) <= values * (1 + 1.0001e-4)))
  expect_identical(tulle:::round_up(c(0.5, 1.234501, 0)), c("0.5", "1.2346", "0"))
})
