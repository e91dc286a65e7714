//! Export of paths to other tools' files: chooses the format and writes the file.

use std::collections::BTreeMap;
use std::path::Path;

use skyhop_files::replace_file;
use skyhop_path::PathTrace;
use skyhop_path::export::{MahimahiError, write_csv, write_mahimahi, write_netem};
use skyhop_units::{Duration, Rate};

use crate::ConvertError;
use crate::format::{Format, Options};

/// Formats that [`export_path`] writes.
pub const FORMATS: [Format; 3] = [
    Format { name: "csv", options: &[] },
    Format { name: "mahimahi", options: &["rate"] },
    Format { name: "netem", options: &["step"] },
];

/// Default interval between changes of a netem script: tc takes a few milliseconds.
const NETEM_STEP: Duration = Duration::from_millis(100);
/// Shortest interval between changes of a netem script: with a shorter one, the script would always be late.
const NETEM_LEAST_STEP: Duration = Duration::from_millis(10);
/// Largest number of steps of a netem script, because a shell takes long to start a longer one; eleven
/// days in steps of 100 ms.
const NETEM_MOST_STEPS: u64 = 10_000_000;

/// Write a path for another tool, atomically.
///
/// # Errors
/// The format is unknown, it does not have one of the options or cannot represent the path, or the file
/// cannot be written.
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
        let what =
            format!("tc cannot change settings that often; expected {NETEM_LEAST_STEP} or more");
        return Err(given.wrong("step", what));
    }
    let steps = duration_ns / step.as_nanos();
    if steps > NETEM_MOST_STEPS {
        let what = format!("{step} makes {steps} steps; at most {NETEM_MOST_STEPS}: lengthen it");
        return Err(given.wrong("step", what));
    }
    Ok(step)
}
