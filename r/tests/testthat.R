library(testthat)
library(tulle)

test_check("tulle")
