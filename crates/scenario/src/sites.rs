//! Lists of sites as CSV files, whose first line names the columns, and Hypatia's lists of ground stations
//! (`id,name,latitude,longitude,elevation`), which have no such line.

use csv::StringRecord;
use serde::{Deserialize, Deserializer};
use skyhop_units::Quoted;

use crate::ScenarioError;
use crate::catalogue::SiteRow;

/// Other names of columns, in lower case, each with the key of [`SiteRow`].
const OTHER_NAMES: [(&str, &str); 14] = [
    ("site", NAME),
    ("latitude", LATITUDE),
    ("lat", LATITUDE),
    ("lat_deg", LATITUDE),
    ("longitude", LONGITUDE),
    ("lon", LONGITUDE),
    ("lon_deg", LONGITUDE),
    ("long", LONGITUDE),
    ("lng", LONGITUDE),
    ("altitude", ALTITUDE),
    ("alt", ALTITUDE),
    ("alt_m", ALTITUDE),
    ("elevation_m", ALTITUDE),
    ("height_m", ALTITUDE),
];
const NAME: &str = "name";
const LATITUDE: &str = "latitude_deg";
const LONGITUDE: &str = "longitude_deg";
const ALTITUDE: &str = "altitude_m";
const POPULATION: &str = "population";

/// Parse a list of sites; `origin` names it in errors.
///
/// # Errors
/// A column is missing, a row has another number of cells than the first line, or a position is impossible; the error
/// states the line number. Or the list is empty.
pub(crate) fn parse(text: &str, origin: &str) -> Result<Vec<SiteRow>, ScenarioError> {
    let text = text.trim_start_matches('\u{feff}');
    // Spreadsheets separate by semicolons or tabs where the comma is the decimal sign.
    let first = text.lines().next().unwrap_or_default();
    let separator = [';', '\t'].into_iter().find(|mark| first.contains(*mark)).unwrap_or(',');
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator as u8)
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let (mut columns, mut rows) = (None, Vec::new());
    let mut record = StringRecord::new();
    loop {
        let at = reader.position().byte() as usize;
        let wrong = |what: String| ScenarioError::key(origin, line_from(text, at), what);
        if !reader.read_record(&mut record).map_err(|error| wrong(unlike_first(&error)))? {
            break;
        }
        let Some(columns) = &columns else {
            let without_names = columns_of_row(&record);
            if let Some(columns) = &without_names {
                rows.push(site(&record, columns).map_err(wrong)?);
            }
            columns = Some(without_names.unwrap_or_else(|| record.iter().map(key_of).collect()));
            continue;
        };
        rows.push(site(&record, columns).map_err(wrong)?);
    }
    if rows.is_empty() {
        return Err(ScenarioError::key(origin, "the list", "has no rows"));
    }
    Ok(rows)
}

/// Line of the first record from a place of the text on; blank lines are no records.
pub(crate) fn line_from(text: &str, at: usize) -> String {
    let rest = text.get(at..).unwrap_or_default();
    let blank = rest.len() - rest.trim_start_matches(['\r', '\n']).len();
    format!("line {}", skyhop_model::line_at(text, at + blank))
}

/// Keys of the columns of a list without names of columns; `None` if the row is no such site.
fn columns_of_row(row: &StringRecord) -> Option<StringRecord> {
    let is_number = |place: usize| row.get(place).is_some_and(|cell| cell.parse::<f64>().is_ok());
    let keys: &[&str] = match [0, 1, 2, 3].map(is_number) {
        [true, false, true, true] => &["", NAME, LATITUDE, LONGITUDE, ALTITUDE],
        [false, true, true, _] => &[NAME, LATITUDE, LONGITUDE, ALTITUDE],
        _ => return None,
    };
    let unnamed = std::iter::repeat("");
    Some(keys.iter().copied().chain(unnamed).take(row.len()).collect())
}

/// Key of a named column; the name itself if the column is none of a site's.
fn key_of(name: &str) -> &str {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let known = [NAME, LATITUDE, LONGITUDE, ALTITUDE, POPULATION].into_iter().find(|key| is(key));
    let other = || OTHER_NAMES.iter().find(|(other, _)| is(other)).map(|(_, key)| *key);
    known.or_else(other).unwrap_or(name)
}

/// Read a number; an empty cell is 0.
pub(crate) fn zero_if_empty<'de, D: Deserializer<'de>>(cell: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(cell)?.unwrap_or_default())
}

/// Parse a row. The error says what is wrong.
fn site(row: &StringRecord, columns: &StringRecord) -> Result<SiteRow, String> {
    let site: SiteRow =
        row.deserialize(Some(columns)).map_err(|error| unlike_site(&error, row, columns))?;
    site.check()?;
    Ok(site)
}

fn unlike_site(error: &csv::Error, row: &StringRecord, columns: &StringRecord) -> String {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return skyhop_model::one_line(&error.to_string());
    };
    let place = err.field().and_then(|place| usize::try_from(place).ok());
    match (err.kind(), place.and_then(|place| Some((columns.get(place)?, row.get(place)?)))) {
        (csv::DeserializeErrorKind::ParseFloat(_), Some((key, cell))) => {
            format!("{key} is {}; expected a number", Quoted(cell))
        }
        (csv::DeserializeErrorKind::Message(what), _) => format!(
            "{}; expected the names of columns {NAME}, {LATITUDE}, {LONGITUDE}, separated by commas, in the first line",
            what.replace("missing field", "no column").replace("duplicate field", "two columns")
        ),
        (other, _) => skyhop_model::one_line(&other.to_string()),
    }
}

/// Message about a line that is no row of the table.
fn unlike_first(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells; expected {expected_len}, as in the first line")
        }
        _ => skyhop_model::one_line(&error.to_string()),
    }
}
