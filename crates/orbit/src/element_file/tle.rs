//! Two-line element sets (TLE), with or without a line for the name.
//!
//! The columns are those of Spacetrack Report 3 (Hoots and Roehrich, 1980) as CelesTrak documents
//! them, with Alpha-5 catalogue numbers; [`sgp4`] reads the fields.

use skyhop_units::UtcInstant;

use super::{ElementFileError, Records, SkipReason, Skipped, printable_name};
use crate::element_set::{ElementSet, MeanElements};

/// Length of a line of a TLE, in characters.
const LENGTH: usize = 69;

/// Parse all records of a text.
pub(super) fn read(text: &str, records: &mut Records<'_>) -> Result<(), ElementFileError> {
    let mut pending = Pending::default();
    for (number, line) in (1..).zip(text.lines()) {
        // Copies of web pages and source files are indented.
        let line = line.trim();
        if line.starts_with("1 ") {
            pending.lost_first_line(records)?;
            pending.first = Some((number, line));
        } else if line.starts_with("2 ") {
            let name = std::mem::take(&mut pending.name);
            match pending.first.take() {
                Some((first_number, first)) => {
                    let name = or_line(name, first_number);
                    records.add(element_set(name, first, line))?;
                }
                None => {
                    let name = or_line(name, number);
                    records.add(Err(Skipped { name, reason: SkipReason::LineMissing }))?;
                }
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            pending.lost_first_line(records)?;
            // Space-Track prefixes the line of the name with the line number 0.
            pending.name = Some(line.strip_prefix("0 ").unwrap_or(line).trim().to_owned());
        }
    }
    pending.lost_first_line(records)
}

/// Incomplete record: the name and the first line, if they have been read.
#[derive(Default)]
struct Pending<'t> {
    name: Option<String>,
    first: Option<(usize, &'t str)>,
}

impl Pending<'_> {
    /// If a first line is pending, report it as skipped, because its second line is missing.
    fn lost_first_line(&mut self, records: &mut Records<'_>) -> Result<(), ElementFileError> {
        let Some((number, _)) = self.first.take() else { return Ok(()) };
        let name = or_line(self.name.take(), number);
        records.add(Err(Skipped { name, reason: SkipReason::LineMissing }))
    }
}

/// Name of a record, or its line number if it has no name.
fn or_line(name: Option<String>, number: usize) -> String {
    let name = name.filter(|name| !name.is_empty());
    name.map_or_else(|| format!("line {number}"), |name| printable_name(&name))
}

fn element_set(name: String, first: &str, second: &str) -> Result<ElementSet, Skipped> {
    elements(name.clone(), first, second).map_err(|reason| Skipped { name, reason })
}

fn elements(name: String, first: &str, second: &str) -> Result<ElementSet, SkipReason> {
    for (which, line) in [(1, first), (2, second)] {
        check_line(which, line)?;
    }
    let read = sgp4::Elements::from_tle(None, first.as_bytes(), second.as_bytes())
        .map_err(|error| SkipReason::Malformed(error.to_string()))?;
    let epoch_ns = read.datetime.and_utc().timestamp_nanos_opt();
    let epoch_ns = epoch_ns.ok_or_else(|| SkipReason::Malformed("the epoch".to_owned()))?;
    ElementSet::new(MeanElements {
        name,
        catalogue_number: read.norad_id,
        epoch: UtcInstant::from_unix_nanos(epoch_ns),
        inclination_deg: read.inclination,
        node_deg: read.right_ascension,
        eccentricity: read.eccentricity,
        perigee_deg: read.argument_of_perigee,
        anomaly_deg: read.mean_anomaly,
        mean_motion_rev_per_day: read.mean_motion,
        bstar: read.drag_term,
    })
    .map_err(|error| SkipReason::Impossible(error.to_string()))
}

/// Check the assumptions of the field parser: 69 printable ASCII characters and the right checksum.
fn check_line(which: u8, line: &str) -> Result<(), SkipReason> {
    if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(SkipReason::Malformed(format!("line {which} is not plain text")));
    }
    if line.len() != LENGTH {
        let what = format!(
            "line {which} has {} characters, expected {LENGTH} (the last is the checksum)",
            line.len()
        );
        return Err(SkipReason::Malformed(what));
    }
    let value = |byte: u8| match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'-' => 1,
        _ => 0,
    };
    let (body, last) = (&line.as_bytes()[..LENGTH - 1], line.as_bytes()[LENGTH - 1]);
    let sum: u32 = body.iter().copied().map(value).sum();
    if !last.is_ascii_digit() || value(last) != sum % 10 {
        return Err(SkipReason::WrongChecksum);
    }
    Ok(())
}
