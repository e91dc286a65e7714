//! Tables in CSV files that a scenario names: the first line names the columns.

use std::fs;

use csv::{Position, ReaderBuilder, StringRecord, Trim};
use skyhop_model::one_line;

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::error::unreadable;
use crate::named::NamedScenario;
use crate::sites::line_from;

/// Names of a table's columns, which may be in any order and next to others.
pub(crate) struct Columns {
    /// Columns without which the table is an error.
    pub(crate) required: &'static [&'static str],
    /// Columns that the table may lack.
    pub(crate) optional: &'static [&'static str],
}

/// Cells of a row, by the places of their columns in [`Columns`]: the required ones first.
pub(crate) struct Cells<'r> {
    columns: &'r Columns,
    /// Place in the record of each column; `None` for those that the table lacks.
    places: &'r [Option<usize>],
    record: &'r StringRecord,
}

impl NamedScenario {
    /// Rows of the table in the file `name`, which is the value of `key`. `row` converts the cells of a row; its error
    /// says what is wrong with them.
    ///
    /// # Errors
    /// There is no such file, it is no text, a column is missing, or a row is wrong; the error names the line.
    pub(crate) fn table_rows<R>(
        &self,
        (key, name): (&str, &str),
        columns: &Columns,
        mut row: impl FnMut(&Cells<'_>) -> Result<R, String>,
    ) -> Result<Vec<R>, ScenarioError> {
        let file = find_file(self.base(), name)
            .ok_or_else(|| self.key_error(key, format!("no such file: \"{name}\"")))?;
        let text = fs::read_to_string(&file).map_err(|source| unreadable(&file, source))?;
        let text = text.trim_start_matches('\u{feff}');
        let wrong = |at: Option<&Position>, what: String| {
            let line = line_from(text, at.map_or(0, |at| at.byte() as usize));
            ScenarioError::key(&file.display().to_string(), line, what)
        };
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .trim(Trim::All)
            .flexible(true)
            .from_reader(text.as_bytes());
        let (mut rows, mut places) = (Vec::new(), None);
        for record in reader.records() {
            let record =
                record.map_err(|error| wrong(error.position(), one_line(&error.to_string())))?;
            let at = record.position();
            match &places {
                None => places = Some(columns.places(&record).map_err(|what| wrong(at, what))?),
                Some(places) => {
                    let cells = Cells { columns, places, record: &record };
                    rows.push(row(&cells).map_err(|what| wrong(at, what))?);
                }
            }
        }
        Ok(rows)
    }
}

impl Columns {
    /// Places of the columns in the first line.
    fn places(&self, first: &StringRecord) -> Result<Vec<Option<usize>>, String> {
        let place = |column: &&str| first.iter().position(|cell| cell.eq_ignore_ascii_case(column));
        let places: Vec<_> = self.required.iter().chain(self.optional).map(place).collect();
        match self.required.iter().zip(&places).find(|(_, place)| place.is_none()) {
            Some((column, _)) => Err(format!(
                "no column `{column}`; expected the names of columns {}, separated by commas",
                listed(self.required)
            )),
            None => Ok(places),
        }
    }
}

impl Cells<'_> {
    /// Cell of a column that the table has. The error says that the row ends before it.
    pub(crate) fn get(&self, column: usize) -> Result<&str, String> {
        self.given(column).ok_or_else(|| {
            let name = self.columns.required.iter().chain(self.columns.optional).nth(column);
            format!("no cell `{}`", name.unwrap_or(&""))
        })
    }

    /// Cell of a column that the table or the row may lack; `None` for an empty one as well.
    pub(crate) fn optional(&self, column: usize) -> Option<&str> {
        self.given(column).filter(|cell| !cell.is_empty())
    }

    fn given(&self, column: usize) -> Option<&str> {
        self.record.get(self.places[column]?)
    }
}

/// Names as a list in a sentence: "from, to and flows".
fn listed(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.join(""),
    }
}
