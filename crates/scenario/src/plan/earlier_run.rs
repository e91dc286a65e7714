//! Loads of a network's links as an earlier run recorded them, from its run directory.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use skyhop_experiment::{NetworkLink, NetworkPlan};
use skyhop_files::{LinkBytes, read_link_bytes};
use skyhop_path::network::{Leg, LegBits};
use skyhop_units::{Duration, Instant, Quoted};

use crate::ScenarioError;
use crate::error::unreadable;
use crate::named::NamedScenario;
use crate::types::EarlierRunKeys;

/// Keys of `[network]` that must be the same in both runs, because links and their loads over time follow from them.
const SAME: [&str; 8] =
    ["constellation", "satellites", "compat", "start", "sites", "relay", "gateways", "pops"];

impl NamedScenario {
    /// Read the loads of all links from the run directory of an earlier run. `network` is this run's `[network]` with all
    /// defaults.
    ///
    /// # Errors
    /// The directory is not that of a run of the same network, or its table of links is wrong.
    pub(crate) fn recorded_loads(
        &self,
        keys: &EarlierRunKeys,
        plan: &NetworkPlan,
        network: &Value,
    ) -> Result<Vec<LegBits>, ScenarioError> {
        let wrong = |what: String| self.key_error("network.background.dir", what);
        let name = Quoted(&keys.dir);
        let directory = find_directory(self.base(), &keys.dir)
            .ok_or_else(|| wrong(format!("no such directory: {name}; expected a run directory")))?;
        let file = directory.join("run.json");
        if !file.is_file() {
            return Err(wrong(format!("{name} has no run.json; expected a run directory")));
        }
        let text = fs::read_to_string(&file).map_err(|source| unreadable(&file, source))?;
        let run: Value = serde_json::from_str(&text)
            .map_err(|_| wrong(format!("run.json of {name} is damaged; do the run again")))?;
        let scenario = &run["scenario"];
        if !scenario["network"].is_object() {
            return Err(wrong(format!(
                "{name} is a run without [network]; expected one of a network"
            )));
        }
        if let Some(key) = SAME.iter().find(|key| scenario["network"][**key] != network[**key]) {
            let what =
                format!("{name} is a run with another network.{key}; expected the same network");
            return Err(wrong(what));
        }
        let sample: Duration = serde_json::from_value(scenario["run"]["sample"].clone())
            .ok()
            .filter(|sample| *sample > Duration::ZERO)
            .ok_or_else(|| {
                wrong(format!("run.json of {name} has no run.sample; do the run again"))
            })?;
        let legs = legs_by_name(plan);
        let leg_bits = |row: LinkBytes| {
            let leg = legs.get(&(row.link.clone(), row.is_back)).ok_or_else(|| {
                wrong(format!("{name} has a link {} that this network lacks", Quoted(&row.link)))
            })?;
            Ok(of_sample(&row, *leg, sample))
        };
        let rows = read_link_bytes(&directory.join("link.parquet"))?;
        rows.into_iter().filter(|row| row.bytes > 0 && row.until_ns > 0).map(leg_bits).collect()
    }

    /// Replace the name of a run directory in a table `network.background` by its absolute path.
    pub(crate) fn make_directory_absolute(&self, background: &mut Value) {
        let Some(name) = background.get("dir").and_then(Value::as_str) else { return };
        let found = find_directory(self.base(), name);
        if let Some(whole) = found.and_then(|found| std::path::absolute(found).ok()) {
            background["dir"] = Value::from(whole.to_string_lossy());
        }
    }
}

/// Find the directory `name`, relative to the scenario's directory first, then to the current directory.
fn find_directory(base: &Path, name: &str) -> Option<PathBuf> {
    [base.join(name), PathBuf::from(name)].into_iter().find(|path| path.is_dir())
}

/// Links by their names in results and whether the direction is back.
fn legs_by_name(plan: &NetworkPlan) -> HashMap<(String, bool), Leg> {
    let both = |(name, link): (String, NetworkLink)| {
        let [forward, back] = match link {
            NetworkLink::Laser(from, to) => [Leg::Laser(from, to), Leg::Laser(to, from)].map(Some),
            NetworkLink::Down(satellite) => [Some(Leg::Down(satellite)), None],
            NetworkLink::Up(site) => [Some(Leg::Up(site)), None],
            NetworkLink::GatewayDown(satellite) => [Some(Leg::GatewayDown(satellite)), None],
            NetworkLink::OwnDown(site) => [Some(Leg::OwnDown(site)), None],
        };
        [((name.clone(), false), forward), ((name, true), back)]
    };
    let all = plan.link_names().into_iter().zip(plan.links()).flat_map(both);
    all.filter_map(|(key, leg)| Some((key, leg?))).collect()
}

/// Bits of a row of a table of links, whose sample is the last one of a run if it is shorter than the others.
fn of_sample(row: &LinkBytes, leg: Leg, sample: Duration) -> LegBits {
    let from_ns = (row.until_ns - 1) / sample.as_nanos() * sample.as_nanos();
    LegBits {
        from: Instant::from_nanos(from_ns),
        until: Instant::from_nanos(row.until_ns),
        leg,
        bits: row.bytes.saturating_mul(8),
    }
}
