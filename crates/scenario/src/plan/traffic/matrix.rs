//! Traffic matrix of a CSV file.

use skyhop_units::Quoted;

use super::Pair;
use crate::ScenarioError;
use crate::check::MOST_FLOWS;
use crate::csv_table::{Cells, Columns};
use crate::named::NamedScenario;
use crate::plan::ground::{Site, SitesByName};

/// Columns of a traffic matrix.
const COLUMNS: Columns = Columns { required: &["from", "to", "flows"], optional: &[] };

impl NamedScenario {
    /// Clients and servers of a matrix, line by line.
    pub(super) fn matrix_pairs(
        &self,
        name: &str,
        sites: &[Site],
    ) -> Result<Vec<Pair>, ScenarioError> {
        let by_name = SitesByName::new(sites);
        let of_file = ("network.traffic.file", name);
        let rows = self.table_rows(of_file, &COLUMNS, |cells| row(cells, &by_name))?;
        let repeated = |(pair, flows): (Pair, u32)| std::iter::repeat_n(pair, flows as usize);
        Ok(rows.into_iter().flat_map(repeated).collect())
    }
}

/// Client, server and number of flows of a row.
fn row(cells: &Cells<'_>, sites: &SitesByName<'_>) -> Result<(Pair, u32), String> {
    let (client, server) = (sites.index(cells.get(0)?)?, sites.index(cells.get(1)?)?);
    let given = cells.get(2)?;
    let flows = given.parse::<u32>().ok().filter(|flows| *flows <= MOST_FLOWS);
    let flows = flows.ok_or_else(|| {
        format!("flows is {}; expected a whole number up to {MOST_FLOWS}", Quoted(given))
    })?;
    if client == server && flows > 0 {
        return Err(format!("{} to itself; expected two sites", Quoted(cells.get(0)?)));
    }
    Ok(([client, server], flows))
}
