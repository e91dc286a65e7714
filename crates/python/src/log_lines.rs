//! Log of the crates on standard error, off unless the environment variable SKYHOP_LOG asks for it.

use std::env;
use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::errors::{Fallible, input_error};

/// Environment variable with the directives, as in `packages/skyhop/skyhop/logs.py`: a level, or TARGET=LEVEL for each target.
const VARIABLE: &str = "SKYHOP_LOG";

/// Begin to log, for the rest of the process and its forked children, if the variable is set. Without a bare level,
/// the other targets log warnings and errors.
///
/// # Errors
/// The variable is not a list of directives.
pub(crate) fn begin() -> Fallible<()> {
    let text = env::var(VARIABLE).unwrap_or_default();
    if text.is_empty() {
        return Ok(());
    }
    let directives: Targets =
        text.parse().map_err(|error| input_error(&format!("{VARIABLE}: {error}")))?;
    let targets = match directives.default_level() {
        None => directives.with_default(LevelFilter::WARN),
        Some(_) => directives,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // An application that embeds the module may have chosen another subscriber, which then receives the events.
    tracing_subscriber::registry().with(targets).with(lines).try_init().unwrap_or_default();
    Ok(())
}
