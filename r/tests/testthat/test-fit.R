test_that("a binomial fit is that of the command line, also its predictions, saved and read again", {
  skip_without_tulle()
  fit <- usual_fit()
  plain <- run_plainly(schema_again, "--epsilon=2", "--seed=7")
  expect_identical(coef(fit, encoded = TRUE)[-1], weights_of(plain))
  expect_identical(coef(fit)[-1], weights_of(plain, "weight_per_unit"))
  expect_identical(coef(fit, encoded = TRUE)[[1]], plain$intercepts[[1]]$intercept)
  expect_identical(fit$proved, plain$proved)
  expect_identical(fit$privacy$epsilon, plain$privacy$epsilon)
  expect_true(fit$privacy$seeded)

  words <- c("predict", file.path(plain$folder, "m"), plain$rows, "--probabilities", "--margins", "--json")
  out <- jsonlite::fromJSON(system2(tulle_path(), shQuote(words), stdout = TRUE, stderr = FALSE))
  kept <- tempfile(fileext = ".rds")
  saveRDS(fit, kept)
  again <- readRDS(kept)
  expect_identical(predict(again, visits), out$probability_yes)
  expect_identical(predict(again, visits, type = "link"), out$margin)
  expect_identical(predict(again, visits, type = "class"), factor(out$prediction, levels = c("no", "yes")))
  of <- coef(fit)
  whole <- !is.na(visits$bmi)
  margin <- of[["(Intercept)"]] + of[["age"]] * visits$age + of[["region = n"]] * (visits$region == "n") +
    of[["region = s"]] * (visits$region == "s") + of[["smoker"]] * visits$smoker + of[["bmi"]] * visits$bmi
  expect_equal(margin[whole], out$margin[whole])

  report <- tempfile(fileext = ".html")
  expect_identical(tulle_report(again, report, title = "Call-back list"), c(report = report))
  page <- paste(readLines(report, encoding = "UTF-8"), collapse = "\n")
  expect_match(page, "Call-back list", fixed = TRUE)
  expect_match(page, "A declared schema of 4 columns", fixed = TRUE)

  expect_error(tulle_write_model(fit, report), "exists", class = "tulle_error")
  written <- tempfile(fileext = ".npz")
  tulle_write_model(fit, written)
  expect_identical(readBin(written, "raw", file.size(written)), fit$model)
})

test_that("of two levels the model is for the second, in any order", {
  skip_without_tulle()
  other <- fit_again(order = c("yes", "no"))
  expect_identical(coef(other), -coef(usual_fit()))
  old <- visits[visits$age > 90 & visits$region == "n", ]
  expect_lt(max(predict(other, old)), 0.5)
  # As the command answers, with its classes in their order.
  said <- list(n_rows = 2, prediction = c("yes", "no"), probability_no = c(0.1, 0.6), probability_yes = c(0.9, 0.4), margin = c(2, -1))
  read <- function(type) tulle:::read_predictions(other, said, type)
  expect_identical(read("link"), c(-2, 1))
  expect_identical(read("response"), c(0.1, 0.6))
  expect_identical(read("class"), factor(c("yes", "no"), levels = c("yes", "no")))
  expect_output(print(other), "Largest weights of 'no'")
})

test_that("a gaussian fit with intervals is that of the command line, by the dot and from a file", {
  skip_without_tulle()
  schema <- sub("\\[target\\].*", "[target]\ncolumn = \"cost\"\nrange = [0, 300]", schema_again)
  plain <- run_plainly(schema, "--epsilon=2", "--seed=7", "--intervals")
  fit <- function(data) {
    tulle_fit(cost ~ . - id - again - stays, data = data, epsilon = 2, family = gaussian,
              ranges = c(known, list(cost = c(0, 300))), levels = regions, columns = list(smoker = "boolean"), seed = 7,
              intervals = TRUE)
  }
  for (found in list(fit(visits), fit(plain$rows))) {
    expect_identical(coef(found, encoded = TRUE)[-1], weights_of(plain))
    expect_identical(formula(found), cost ~ age + region + smoker + bmi, ignore_formula_env = TRUE)
    expect_identical(nobs(found), 600L)
    ends <- confint(found)
    lines <- plain$intervals$weights
    expect_identical(unname(ends["age", ]), as.numeric(c(lines[[1]]$low, lines[[1]]$high)))
    expect_identical(rownames(ends)[nrow(ends)], "(Intercept)")
  }
  expect_error(confint(found, level = 0.9), "0.95", class = "tulle_error")
  expect_output(print(summary(found)), "Coefficients, with 95 % intervals")
  # New rows of a data frame and of a file.
  expect_identical(predict(found, visits), predict(found, plain$rows, type = "link"))
  expect_error(predict(found, visits, type = "class"), "regression", class = "tulle_error")
  picture <- tempfile(fileext = ".pdf")
  grDevices::pdf(picture)
  shown <- plot(found, encoded = FALSE)
  grDevices::dev.off()
  expect_setequal(names(shown), c("age", "region = n", "region = s", "smoker", "bmi"))
  expect_gt(file.size(picture), 1000)
})

test_that("poisson and multinomial fits, people with several rows, weights and further options", {
  skip_without_tulle()
  heavy <- cbind(visits, w = 0.5)
  fit <- tulle_fit(stays ~ age - 1, heavy, epsilon = 2, family = "poisson", ranges = list(age = c(18, 95), stays = c(0, 20)),
                   person = "id", rows_per_person = 2, weights = "w", method = "frank_wolfe", output = tempfile())
  expect_equal(predict(fit, visits[1:4, ], type = "link"), coef(fit)[["(Intercept)"]] + coef(fit)[["age"]] * visits$age[1:4])
  expect_match(fit$privacy$unit, "person")
  expect_match(fit$privacy$method, "Frank-Wolfe")
  expect_false(fit$privacy$seeded)
  expect_identical(formula(fit), stays ~ age - 1, ignore_formula_env = TRUE)

  fit <- tulle_fit(region ~ age, visits, epsilon = 2, family = "multinomial", ranges = known,
                   levels = list(region = c("s", "n", "east")), seed = 1)
  expect_identical(colnames(coef(fit)), c("s", "n", "east"))
  chances <- predict(fit, visits[1:9, ])
  expect_identical(colnames(chances), c("s", "n", "east"))
  expect_equal(unname(rowSums(chances)), rep(1, 9))
  margins <- predict(fit, visits[1:9, ], type = "link")
  expect_equal(unname(margins), unname(cbind(1, visits$age[1:9]) %*% coef(fit)))
  said <- list(n_rows = 2, prediction = c("s", "east"))
  expect_identical(tulle:::read_predictions(fit, said, "class"), factor(c("s", "east"), levels = c("s", "n", "east")))
})
