//! Python bindings of skyhop's lists: constellations, sites, queue disciplines, applications and others.

use std::path::Path;

use pyo3::prelude::*;
use serde_json::Value;
use skyhop_link::QueueDiscipline;
use skyhop_model::Profile;
use skyhop_orbit::Constellation;
use skyhop_scenario::catalogue;

use crate::errors::Fallible;

/// Source that is shown for entries that are code and not data files.
pub(crate) const BUILT_IN: &str = "built in";

/// Entry of a list: name, description and source.
#[pyclass(frozen, get_all)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) source: String,
}

/// Constellation that comes with skyhop.
#[pyclass(frozen, get_all)]
pub(crate) struct ConstellationEntry {
    name: String,
    description: String,
    source: String,
    satellites: u32,
    /// Altitudes of the shells and of the geostationary orbit.
    altitudes_km: Vec<f64>,
    inclinations_deg: Vec<f64>,
    isl: bool,
}

/// Altitude of the geostationary orbit, in km.
const GEOSTATIONARY_KM: f64 = 35_786.0;

#[pyfunction]
pub(crate) fn list_constellations() -> Fallible<Vec<ConstellationEntry>> {
    catalogue::constellation_names()
        .into_iter()
        .map(|name| {
            let (text, found) = catalogue::constellation_text(&name, Path::new(""), &name)?;
            let constellation = Constellation::parse(&text, &found)?;
            let shells = constellation.shells.iter();
            let mut altitudes_km: Vec<f64> =
                shells.clone().map(|shell| shell.altitude.metres() / 1e3).collect();
            let mut inclinations_deg: Vec<f64> =
                shells.map(|shell| shell.inclination_deg).collect();
            if !constellation.geostationary.is_empty() {
                altitudes_km.push(GEOSTATIONARY_KM);
                inclinations_deg.push(0.0);
            }
            let satellites = constellation.satellites();
            let Constellation { description, source, isl, .. } = constellation;
            Ok(ConstellationEntry {
                name,
                description,
                source,
                satellites,
                altitudes_km,
                inclinations_deg,
                isl,
            })
        })
        .collect()
}

#[pyfunction]
pub(crate) fn list_sites() -> Fallible<Vec<Entry>> {
    catalogue::site_list_names()
        .into_iter()
        .map(|name| {
            let rows = sites(&name)?;
            let description = format!("{} sites", rows.len());
            let source = "named in each row of the list".to_owned();
            Ok(Entry { name, description, source })
        })
        .collect()
}

/// Read a list of sites. Return the name, latitude (deg), longitude (deg) and altitude (m) of each site.
#[pyfunction]
pub(crate) fn sites(name: &str) -> Fallible<Vec<(String, f64, f64, f64)>> {
    let rows = catalogue::site_list(name, Path::new(""), "sites", name)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.name, row.latitude_deg, row.longitude_deg, row.altitude_m))
        .collect())
}

/// Queue discipline or video controller, with its parameters and their defaults as in a scenario.
#[pyclass(frozen, get_all)]
pub(crate) struct QdiscEntry {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) source: String,
    pub(crate) parameters: Vec<(String, String)>,
}

#[pyfunction]
pub(crate) fn list_qdiscs() -> Vec<QdiscEntry> {
    skyhop_link::QDISCS
        .iter()
        .map(|entry| QdiscEntry {
            name: entry.name.to_owned(),
            description: entry.summary.to_owned(),
            source: BUILT_IN.to_owned(),
            parameters: parameters(&(entry.default)()),
        })
        .collect()
}

fn parameters(qdisc: &QueueDiscipline) -> Vec<(String, String)> {
    let table = qdisc.serialize_whole(serde_json::value::Serializer);
    keys_of(&table.expect("a qdisc's parameters have names"))
}

/// Keys and values of a table as in a scenario, except `kind`.
pub(crate) fn keys_of(table: &Value) -> Vec<(String, String)> {
    let keys = table.as_object().into_iter().flatten().filter(|(key, _)| *key != "kind");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    keys.map(|(key, value)| (key.clone(), text(value))).collect()
}

#[pyfunction]
pub(crate) fn list_apps() -> Vec<Entry> {
    skyhop_app::APPS.iter().map(|entry| built_in(entry.name, entry.summary)).collect()
}

#[pyfunction]
pub(crate) fn list_profiles() -> Vec<Entry> {
    Profile::ALL.iter().map(|profile| built_in(profile.name(), profile.summary())).collect()
}

#[pyfunction]
pub(crate) fn list_handovers() -> Vec<Entry> {
    skyhop_path::handover::POLICIES
        .iter()
        .map(|entry| built_in(entry.name, entry.summary))
        .collect()
}

pub(crate) fn built_in(name: &str, summary: &str) -> Entry {
    Entry { name: name.to_owned(), description: summary.to_owned(), source: BUILT_IN.to_owned() }
}

/// JSON Schema of the scenario file.
#[pyfunction]
pub(crate) fn scenario_schema() -> Fallible<String> {
    Ok(serde_json::to_string_pretty(&skyhop_scenario::schema())?)
}
