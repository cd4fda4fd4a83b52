"""Sources of mail: settings, runs, imports, uploads, dead letters."""
