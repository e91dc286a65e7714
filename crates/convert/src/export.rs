//! Paths as other tools' files: chooses the format, and hands the bytes to be written.

use std::collections::BTreeMap;
use std::path::Path;

use skyhop_files::replace_file;
use skyhop_path::PathTrace;
use skyhop_path::export::{MahimahiError, write_csv, write_mahimahi, write_netem};
use skyhop_units::{Duration, Rate};

use crate::ConvertError;
use crate::format::{Format, Options};

/// The formats that [`export_path`] writes.
pub const FORMATS: [Format; 3] = [
    Format { name: "csv", options: &[] },
    Format { name: "mahimahi", options: &["rate"] },
    Format { name: "netem", options: &["step"] },
];

/// How often a netem script changes anything unless told: tc takes a few milliseconds.
const NETEM_STEP: Duration = Duration::from_millis(100);
/// A script that changes things more often would always be late.
const NETEM_LEAST_STEP: Duration = Duration::from_millis(10);
/// A script of more lines than that takes a shell long to begin with: eleven days of tenths of a second.
const NETEM_MOST_STEPS: u64 = 10_000_000;

/// Writes a path for another tool, whole or not at all.
///
/// # Errors
/// An unknown format or an option that is not its own, a path that the format cannot hold, a file
/// that cannot be written.
pub fn export_path(
    trace: &PathTrace,
    path: &Path,
    format: &str,
    options: &BTreeMap<String, String>,
) -> Result<(), ConvertError> {
    let origin = path.display().to_string();
    let given = Options { origin: &origin, texts: options };
    given.check(&FORMATS, format)?;
    let mut bytes = Vec::new();
    let written = match format {
        "csv" => write_csv(trace, &mut bytes).map_err(MahimahiError::Write),
        "mahimahi" => write_mahimahi(trace, given.quantity::<Rate>("rate")?, &mut bytes),
        _ => {
            let step = netem_step(&given, trace.header.duration_ns)?;
            write_netem(trace, step, &mut bytes).map_err(MahimahiError::Write)
        }
    };
    written.map_err(|error| ConvertError::Path { origin, what: error.to_string() })?;
    Ok(replace_file(path, &bytes)?)
}

fn netem_step(given: &Options<'_>, duration_ns: u64) -> Result<Duration, ConvertError> {
    let step: Duration = given.quantity("step")?.unwrap_or(NETEM_STEP);
    if step < NETEM_LEAST_STEP {
        let what = format!("tc is not that fast; expected {NETEM_LEAST_STEP} or more");
        return Err(given.wrong("step", what));
    }
    let steps = duration_ns / step.as_nanos();
    if steps > NETEM_MOST_STEPS {
        let what = format!("{step} makes {steps} steps; at most {NETEM_MOST_STEPS}: lengthen it");
        return Err(given.wrong("step", what));
    }
    Ok(step)
}
