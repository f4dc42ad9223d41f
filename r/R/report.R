tulle_report <- function(fit, file = "report.html", title = NULL, audit = NULL, card = NULL, registry = NULL) {
  check_fit(fit)
  files <- list(title = title, audit = audit, card = card, registry = registry, output = file)
  with_private_folder(function(folder) {
    model <- file.path(folder, "model.npz")
    writeBin(fit$model, model)
    named <- names(files) != "title" & !vapply(files, is.null, NA)
    files[named] <- lapply(files[named], path.expand)
    values <- run_tulle(c("report", model, command_options(files)), folder)
    invisible(unlist(values[c("report", "card", "registry")]))
  })
}

tulle_write_model <- function(fit, file, replace = FALSE) {
  check_fit(fit)
  if (file.exists(file) && !isTRUE(replace)) tulle_stop(paste0(file, " exists; pass replace = TRUE to replace it"))
  writeBin(fit$model, file)
  invisible(file)
}
