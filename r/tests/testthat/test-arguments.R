refused <- function(formula, ..., data = visits, family = "gaussian") {
  error <- tryCatch(tulle_fit(formula, data = data, epsilon = 1, family = family, ...), error = identity)
  expect_s3_class(error, "tulle_error")
  expect_identical(error$exit_code, NA_integer_)
  conditionMessage(error)
}

test_that("a formula names columns only", {
  for (formula in list(cost ~ log(age), cost ~ age:bmi, cost ~ age * bmi, log(cost) ~ age, cost ~ offset(age) + bmi, cost ~ I(age^2))) {
    expect_match(refused(formula), "must name columns only")
  }
  expect_match(refused(~age), "two sides")
  expect_match(refused(cost ~ 1), "at least one column")
  expect_match(refused(cost ~ weight), "no column named 'weight'")
  expect_match(refused(Surv(cost, smoker) ~ age), "no survival models")
  expect_match(refused(cost ~ age, family = "cox"), "no survival models")
  expect_match(refused(cost ~ age, family = "beta"), "family must be one of")
  expect_match(refused(cost ~ age, family = stats::binomial("probit")), "probit")
  twice <- stats::setNames(visits[c("age", "age", "cost")], c("age", "age", "cost"))
  expect_match(refused(cost ~ age, data = twice), "several columns named 'age'")
  starred <- stats::setNames(visits[c("age", "cost")], c("a*", "cost"))
  expect_match(refused(cost ~ `a*`, data = starred, columns = list("a*" = "boolean")), "rename 'a\\*'")
})

test_that("names that need backticks, the dot and the person are read as meant", {
  read <- function(formula, header, left_out = NULL) tulle:::read_formula(formula, header, left_out)[1:3]
  header <- c("y", "a b", "x-1", "id")
  expect_identical(read(y ~ `a b`, header), list(response = "y", features = "a b", intercept = TRUE))
  expect_identical(read(y ~ ., header, "id"), list(response = "y", features = c("a b", "x-1"), intercept = TRUE))
  expect_identical(read(`a b` ~ . - `x-1` - 1, header), list(response = "a b", features = c("y", "id"), intercept = FALSE))
})

test_that("arguments that contradict each other are refused before the command is started", {
  expect_match(refused(again ~ age, ranges = known, levels = list(again = letters[1:3]), family = "binomial"), "multinomial")
  expect_match(refused(cost ~ age, ranges = known), "ranges = list\\(cost = c\\(LOW, HIGH\\)\\)")
  expect_match(refused(cost ~ age, ranges = known, columns = list(age = "boolean")), "declared twice: 'age'")
  expect_match(refused(cost ~ age, ranges = list(c(0, 1))), "names of columns")
  expect_match(refused(cost ~ age, schema = "x.toml"), "unknown arguments: 'schema'")
  expect_match(refused(cost ~ age, target = "x"), "unknown arguments: 'target'")
  expect_match(refused(cost ~ age, rho = 1), "pass epsilon, or rho")
  expect_match(refused(cost ~ age, data = 1:3), "data must be a data frame")
  expect_error(tulle_fit(cost ~ age, visits, epsilon = NA_real_), "one number above 0", class = "tulle_error")
  expect_error(tulle_bill(1), "no model", class = "tulle_error")
})

test_that("options are passed in one word, and only those that are set", {
  words <- tulle:::command_options(list(by = "-x y", delta = 1e-6, seed = NULL, replace = FALSE, intervals = TRUE,
                                        class_weight = c(no = 1, yes = 5), group = list(c("a", "b"), "c")))
  expect_identical(words, c("--by=-x y", "--delta=1e-06", "--intervals", "--class-weight=no=1,yes=5", "--group=a,b", "--group=c"))
})
