//! Export of paths as other tools' files: chooses the format, and writes the bytes.

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
/// Least interval between changes: a script with shorter ones would always be late.
const NETEM_LEAST_STEP: Duration = Duration::from_millis(10);
/// Largest number of steps; a shell takes long to start a longer script. Equals eleven days of tenths of a
/// second.
const NETEM_MOST_STEPS: u64 = 10_000_000;

/// Write a path for another tool, atomically.
///
/// # Errors
/// An unknown format, an option of another format, a path that the format cannot hold, or a file that cannot
/// be written.
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
