//! Data that comes with skyhop, found by name: one file each in data/.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use skyhop_access::Profile;
use skyhop_orbit::{Constellation, ElementFile, Geodetic};
use skyhop_path::Place;
use skyhop_units::did_you_mean;

use crate::error::unreadable;
use crate::types::PositionKeys;
use crate::{ScenarioError, sites};

static CONSTELLATIONS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/constellations");
static PROFILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/access");
static SITES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/sites");

/// Valid altitudes of sites in metres: from the deepest mine to the height of balloons.
const ALTITUDES_M: RangeInclusive<f64> = -5_000.0..=50_000.0;

/// Largest population of a site.
const MOST_INHABITANTS: f64 = 1e12;

/// Row of a list of sites.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SiteRow {
    /// Name of the site.
    pub name: String,
    /// Geodetic latitude in degrees.
    pub latitude_deg: f64,
    /// Longitude in degrees, positive to the east.
    pub longitude_deg: f64,
    /// Height above the ellipsoid in metres; 0 if the list does not state it.
    #[serde(default, deserialize_with = "sites::zero_if_empty")]
    pub altitude_m: f64,
    /// Inhabitants, if the list states them.
    #[serde(default)]
    pub population: Option<f64>,
}

impl SiteRow {
    /// Check the position. The error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { latitude_deg, longitude_deg, altitude_m, population, .. } = self;
        if !(-90.0..=90.0).contains(latitude_deg) || !(-180.0..=360.0).contains(longitude_deg) {
            return Err(format!("{latitude_deg}, {longitude_deg} is not on Earth"));
        }
        if !ALTITUDES_M.contains(altitude_m) {
            let expected = format!("{} to {} m", ALTITUDES_M.start(), ALTITUDES_M.end());
            return Err(format!("an altitude of {altitude_m} m; expected {expected}"));
        }
        if let Some(wrong) = population.filter(|count| !(0.0..=MOST_INHABITANTS).contains(count)) {
            return Err(format!("a population of {wrong}; expected 0 to {MOST_INHABITANTS:e}"));
        }
        Ok(())
    }

    /// Convert the row to a place of a path.
    pub fn into_place(self) -> Place {
        let Self { name, latitude_deg, longitude_deg, altitude_m, .. } = self;
        Place { name, position: Geodetic { latitude_deg, longitude_deg, altitude_m } }
    }
}

impl From<PositionKeys> for SiteRow {
    fn from(keys: PositionKeys) -> Self {
        let PositionKeys { name, lat, lon, alt, population, .. } = keys;
        let population = population.map(|inhabitants| inhabitants as f64);
        Self { name, latitude_deg: lat, longitude_deg: lon, altitude_m: alt, population }
    }
}

/// Names of all constellations that come with skyhop.
pub fn constellation_names() -> Vec<String> {
    stems(&CONSTELLATIONS, "toml")
}

/// Names of all access profiles that come with skyhop.
pub fn profile_names() -> Vec<String> {
    stems(&PROFILES, "toml")
}

/// Return the access profile that skyhop ships as `name`, or that of the user's file `name`.
///
/// # Errors
/// There is neither such a profile nor such a file, or the file is not a valid profile.
pub fn access_profile(
    name: &str,
    base: &Path,
    origin: &str,
    key: &str,
) -> Result<Profile, ScenarioError> {
    let parse = |text: &str, file: &str| {
        Profile::parse(text, file)
            .map_err(|error| ScenarioError::key(origin, key, error.to_string()))
    };
    let file = PROFILES.get_file(format!("{name}.toml"));
    if let Some(text) = file.and_then(|file| file.contents_utf8()) {
        return parse(text, &format!("{name}.toml"));
    }
    let path = find_file(base, name).ok_or_else(|| {
        let known = profile_names();
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let known = known.join(", ");
        let what =
            format!("unknown access profile \"{name}\"{hint}; expected {known}, or a TOML file");
        ScenarioError::key(origin, key, what)
    })?;
    parse(&read(&path)?, &path.display().to_string())
}

/// Names of all lists of sites that come with skyhop.
pub fn site_list_names() -> Vec<String> {
    stems(&SITES, "csv")
}

/// Return the TOML text of the constellation that skyhop ships as `name`, or of the user's file
/// `name`, and the name of the file that contains it.
///
/// # Errors
/// There is neither such a constellation nor such a file, or the file cannot be read.
pub fn constellation_text(
    name: &str,
    base: &Path,
    origin: &str,
) -> Result<(String, String), ScenarioError> {
    let file = CONSTELLATIONS.get_file(format!("{name}.toml"));
    if let Some(text) = file.and_then(|file| file.contents_utf8()) {
        return Ok((text.to_owned(), format!("{name}.toml")));
    }
    let path = find_file(base, name).ok_or_else(|| {
        let known = constellation_names();
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let known = known.join(", ");
        let what = format!(
            "{}{hint}; expected {known}, geo:LONGITUDE, a file, or the address of element sets",
            unknown("constellation", name)
        );
        ScenarioError::key(origin, "path.constellation", what)
    })?;
    Ok((read(&path)?, path.display().to_string()))
}

/// Find the constellation of an element file, among those that skyhop ships: the one whose prefix of
/// satellite names begins more than half of the names in the file.
///
/// # Errors
/// A constellation file that comes with skyhop is damaged.
pub fn fleet_of(file: &ElementFile) -> Result<Option<Constellation>, ScenarioError> {
    for name in constellation_names() {
        let (text, found) = constellation_text(&name, Path::new(""), &name)?;
        let constellation = Constellation::parse(&text, &found)
            .map_err(|error| ScenarioError::key(&found, "constellation", error.to_string()))?;
        let Some(prefix) = &constellation.satellite_prefix else { continue };
        let named = file.sets.iter().filter(|set| set.elements().name.starts_with(prefix)).count();
        if 2 * named > file.sets.len() {
            return Ok(Some(constellation));
        }
    }
    Ok(None)
}

/// Return the rows of the list of sites that skyhop ships as `name`, or of the user's CSV file `name`.
///
/// # Errors
/// There is neither such a list nor such a file, the file cannot be read, a column is missing, or a
/// position is impossible; each error names the file and the line.
pub fn site_list(
    name: &str,
    base: &Path,
    origin: &str,
    key: &str,
) -> Result<Vec<SiteRow>, ScenarioError> {
    let file = SITES.get_file(format!("{name}.csv"));
    if let Some(text) = file.and_then(|file| file.contents_utf8()) {
        return sites::parse(text, &format!("site list {name}"));
    }
    let path = find_file(base, name).ok_or_else(|| {
        let known = site_list_names();
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let known = known.join(", ");
        let what =
            format!("{}{hint}; expected {known}, or a CSV file", unknown("list of sites", name));
        ScenarioError::key(origin, key, what)
    })?;
    sites::parse(&read(&path)?, &path.display().to_string())
}

/// Begin of the message about a name that is neither data that comes with skyhop nor a file.
fn unknown(noun: &str, name: &str) -> String {
    let extension = Path::new(name).extension().map(|end| end.to_string_lossy());
    let is_file = name.contains('/')
        || extension.is_some_and(|end| end.starts_with(|first: char| first.is_alphabetic()));
    if is_file { format!("no such file: \"{name}\"") } else { format!("unknown {noun} \"{name}\"") }
}

/// Find the file `name`, relative to the scenario's directory first, then to the current directory.
pub(crate) fn find_file(base: &Path, name: &str) -> Option<PathBuf> {
    [base.join(name), PathBuf::from(name)].into_iter().find(|path| path.is_file())
}

/// Find the user's file `name`; `None` if `name` is the name of data that comes with skyhop.
pub(crate) fn given_file(base: &Path, name: &str) -> Option<PathBuf> {
    let shipped = constellation_names().into_iter().chain(site_list_names()).chain(profile_names());
    find_file(base, name).filter(|_| !shipped.into_iter().any(|known| known == name))
}

fn stems(directory: &Dir<'_>, extension: &str) -> Vec<String> {
    let mut names: Vec<String> = directory
        .files()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    fs::read_to_string(path).map_err(|source| unreadable(path, source))
}
