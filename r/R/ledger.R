tulle_ledger_open <- function(ledger, dataset, epsilon, delta, witness = NULL) {
  options <- command_options(list(dataset = dataset, epsilon = epsilon, delta = delta, witness = witness))
  with_private_folder(function(folder) run_tulle(c("ledger", "open", path.expand(ledger), options), folder))
  invisible(ledger)
}

tulle_ledger_show <- function(ledger, dataset = NULL) {
  words <- c("ledger", "show", path.expand(ledger), command_options(list(dataset = dataset)))
  values <- with_private_folder(function(folder) run_tulle(words, folder))
  of_one <- function(found) {
    of <- function(name, empty) vapply(found$entries, function(entry) if (is.null(entry[[name]])) empty else as.vector(entry[[name]], mode(empty)), empty)
    data.frame(
      dataset = rep(found$dataset, length(found$entries)), time = of("time", ""), what = of("what", ""),
      analyst = of("analyst", ""), purpose = of("purpose", ""), epsilon = of("epsilon", 0), delta = of("delta", 0),
      share = of("share", 0), stringsAsFactors = FALSE
    )
  }
  entries <- do.call(rbind, lapply(values$datasets, of_one))
  caps <- do.call(rbind, lapply(values$datasets, function(found) {
    data.frame(dataset = found$dataset, epsilon_cap = found$cap$epsilon, delta_cap = found$cap$delta, share = found$share,
               head = found$head, stringsAsFactors = FALSE)
  }))
  structure(list(caps = caps, entries = entries), class = "tulle_ledger")
}

print.tulle_ledger <- function(x, ...) {
  shown <- x$entries
  caps <- x$caps
  cat("A ledger, not for release. Data sets and the shares of their caps that are spent:\n")
  caps$share <- round_up(caps$share)
  caps$head <- substr(caps$head, 1, 12)
  print(caps, row.names = FALSE, ...)
  if (NROW(shown)) {
    for (name in c("epsilon", "delta", "share")) shown[[name]] <- round_up(shown[[name]])
    cat("\nEntries:\n")
    print(shown, row.names = FALSE, ...)
  }
  invisible(x)
}
