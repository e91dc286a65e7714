//! Traffic matrix of a CSV file.

use std::fs;

use csv::{ReaderBuilder, StringRecord, Trim};
use skyhop_model::one_line;
use skyhop_units::Quoted;

use super::Pair;
use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::check::MOST_FLOWS;
use crate::error::unreadable;
use crate::named::NamedScenario;
use crate::plan::ground::{Site, SitesByName};

/// Columns of the file.
const COLUMNS: [&str; 3] = ["from", "to", "flows"];

impl NamedScenario {
    /// Clients and servers of a matrix, line by line.
    pub(super) fn matrix_pairs(
        &self,
        name: &str,
        sites: &[Site],
    ) -> Result<Vec<Pair>, ScenarioError> {
        let file = find_file(self.base(), name).ok_or_else(|| {
            let what = format!("no such file: \"{name}\"");
            self.key_error("network.traffic.file", what)
        })?;
        let text = fs::read_to_string(&file).map_err(|source| unreadable(&file, source))?;
        let wrong = |line: u64, what: String| {
            ScenarioError::key(&file.display().to_string(), format!("line {line}"), what)
        };
        let by_name = SitesByName::new(sites);
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .trim(Trim::All)
            .flexible(true)
            .from_reader(text.as_bytes());
        let mut pairs = Vec::new();
        let mut columns = None;
        for record in reader.records() {
            let record = record.map_err(|error| {
                wrong(error.position().map_or(1, csv::Position::line), one_line(&error.to_string()))
            })?;
            let line = record.position().map_or(1, csv::Position::line);
            match &columns {
                None => columns = Some(columns_of(&record).map_err(|what| wrong(line, what))?),
                Some(columns) => {
                    let (pair, flows) =
                        row(&record, columns, &by_name).map_err(|what| wrong(line, what))?;
                    pairs.extend(std::iter::repeat_n(pair, flows as usize));
                }
            }
        }
        Ok(pairs)
    }
}

/// Places of the columns in the first line.
fn columns_of(first: &StringRecord) -> Result<[usize; 3], String> {
    let mut places = [0; 3];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = first.iter().position(|cell| cell.eq_ignore_ascii_case(column));
        *place = found.ok_or_else(|| {
            format!("no column `{column}`; expected the names of columns from, to and flows, separated by commas")
        })?;
    }
    Ok(places)
}

/// Client, server and number of flows of a line.
fn row(
    record: &StringRecord,
    columns: &[usize; 3],
    sites: &SitesByName<'_>,
) -> Result<(Pair, u32), String> {
    let cell = |column: usize| {
        record.get(columns[column]).ok_or_else(|| format!("no cell `{}`", COLUMNS[column]))
    };
    let (client, server) = (sites.index(cell(0)?)?, sites.index(cell(1)?)?);
    let given = cell(2)?;
    let flows = given.parse::<u32>().ok().filter(|flows| *flows <= MOST_FLOWS);
    let flows = flows.ok_or_else(|| {
        format!("flows is {}; expected a whole number up to {MOST_FLOWS}", Quoted(given))
    })?;
    if client == server && flows > 0 {
        return Err(format!("{} to itself; expected two sites", Quoted(cell(0)?)));
    }
    Ok(([client, server], flows))
}
