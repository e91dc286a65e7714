"""The pages, a file per matter: plain functions of an `Ask`."""
