//! Plan of a network's background: the demands between its sites.

use skyhop_experiment::BackgroundPlan;
use skyhop_model::ETHERNET_HEADER;
use skyhop_path::network::Demand;
use skyhop_units::{Duration, Instant, Quoted, Rate};

use crate::ScenarioError;
use crate::csv_table::{Cells, Columns};
use crate::named::NamedScenario;
use crate::plan::ground::{Ground, Site, SitesByName};
use crate::types::{BackgroundKind, BackgroundSection};

/// Largest number of demands: the route of each is followed in every step.
const MOST_DEMANDS: u64 = 1_000_000;

/// Columns of a matrix of demands.
const COLUMNS: Columns =
    Columns { required: &["from", "to", "rate_bps"], optional: &["from_s", "until_s"] };

impl NamedScenario {
    /// Plan the background of a network with these sites.
    ///
    /// # Errors
    /// The file of a matrix is wrong, a population is not known, or there are too many demands.
    pub(crate) fn background_plan(
        &self,
        background: &BackgroundSection,
        ground: &Ground,
    ) -> Result<BackgroundPlan, ScenarioError> {
        // Gateways and points of presence have demands only by their names.
        let sites = &ground.sites[..ground.terminals()];
        let demands = match &background.kind {
            BackgroundKind::Matrix(keys) => self.demand_matrix(&keys.file, &ground.sites)?,
            // The links of an earlier run are found when those of this one are known.
            BackgroundKind::Run(_) => Vec::new(),
            BackgroundKind::Uniform(keys) => {
                self.between_all(keys.rate, &vec![1.0; sites.len()])?
            }
            BackgroundKind::Gravity(keys) => {
                let populations = sites.iter().map(Site::known_population);
                let populations: Vec<u64> = populations
                    .collect::<Result<_, _>>()
                    .map_err(|what| self.key_error("network.sites", what))?;
                let weights: Vec<f64> = populations.into_iter().map(|one| one as f64).collect();
                self.between_all(keys.rate, &weights)?
            }
        };
        let remedy = ("network.background", "demands", "have fewer sites or rows");
        self.within(remedy, demands.len() as u64, MOST_DEMANDS)?;
        let common = &background.common;
        Ok(BackgroundPlan {
            demands,
            recorded: Vec::new(),
            most: common.most,
            packet: common.packet + ETHERNET_HEADER,
            burst: common.burst,
        })
    }

    /// Demands from each site to each other one, proportional to the product of both weights, with this sum.
    fn between_all(&self, rate: Rate, weights: &[f64]) -> Result<Vec<Demand>, ScenarioError> {
        let total: f64 = weights.iter().sum();
        let products: f64 = weights.iter().map(|own| own * (total - own)).sum();
        if products <= 0.0 {
            let what = "has fewer than two sites with inhabitants";
            return Err(self.key_error("network.sites", what));
        }
        let per_product = rate.bits_per_second() as f64 / products;
        let indices = || (0..).zip(weights);
        let pairs = indices().flat_map(|from| indices().map(move |to| (from, to)));
        let demand = |((from, of_from), (to, of_to)): ((u32, &f64), (u32, &f64))| {
            let rate_bps = (per_product * of_from * of_to).round() as u64;
            let rate = Rate::from_bits_per_second(rate_bps);
            let lasts = (Instant::START, Instant::NEVER);
            Demand { from, to, rate, begins: lasts.0, ends: lasts.1 }
        };
        let demands = pairs.filter(|(from, to)| from.0 != to.0).map(demand);
        Ok(demands.filter(|demand| demand.rate > Rate::ZERO).collect())
    }

    /// Demands of a file, row by row.
    fn demand_matrix(&self, name: &str, sites: &[Site]) -> Result<Vec<Demand>, ScenarioError> {
        let by_name = SitesByName::new(sites);
        let of_file = ("network.background.file", name);
        self.table_rows(of_file, &COLUMNS, |cells| row(cells, &by_name))
    }
}

/// Demand of a row.
fn row(cells: &Cells<'_>, sites: &SitesByName<'_>) -> Result<Demand, String> {
    let (from, to) = (sites.index(cells.get(0)?)?, sites.index(cells.get(1)?)?);
    if from == to {
        return Err(format!("{} to itself; expected two sites", Quoted(cells.get(0)?)));
    }
    let rate_bps = number("rate_bps", cells.get(2)?)?.round() as u64;
    let time = |name: &str, column: usize, default: Instant| match cells.optional(column) {
        Some(cell) => number(name, cell).map(|at_s| Instant::START + Duration::from_secs_f64(at_s)),
        None => Ok(default),
    };
    let begins = time("from_s", 3, Instant::START)?;
    let ends = time("until_s", 4, Instant::NEVER)?;
    if ends <= begins {
        let until = Quoted(cells.get(4)?);
        return Err(format!("until_s is {until}; expected a time after from_s"));
    }
    Ok(Demand { from, to, rate: Rate::from_bits_per_second(rate_bps), begins, ends })
}

/// Largest number in a cell: times and rates are far below.
const MOST: f64 = 1e15;

/// Number that a cell gives, 0 or more.
fn number(name: &str, cell: &str) -> Result<f64, String> {
    let number = cell.parse().ok().filter(|number| (0.0..=MOST).contains(number));
    number.ok_or_else(|| format!("{name} is {}; expected a number, 0 or more", Quoted(cell)))
}
