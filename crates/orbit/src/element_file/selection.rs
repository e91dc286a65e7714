//! Selection of a file's element sets as a constellation for a period of time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use skyhop_units::{Duration, Quoted, UtcInstant};
use thiserror::Error;

use super::{ElementFile, RecordReport, SkipReason, Skipped};
use crate::formation::Formation;
use crate::{Constellation, ElementSet, Propagator};

/// Altitude above the equator's radius below which a satellite is decaying, in metres.
const LOWEST_ALTITUDE_M: f64 = 120e3;
const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;

/// Selection of a file's element sets, and the period for which they are used.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Start of the period; `None` for the median of the epochs, rounded down to the minute.
    pub start: Option<UtcInstant>,
    /// Duration of the period.
    pub duration: Duration,
    /// Maximum difference between an epoch and the start.
    pub stale_after: Duration,
    /// Filter of the satellites by name, shell and plane.
    pub satellites: SatelliteFilter,
    /// Lowest elevation at which sites use the satellites, in degrees.
    pub minimum_elevation_deg: f64,
}

/// Error of a selection: none of the file's element sets can be used.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("no element set can be used: {report}{hint}")]
pub struct SelectionError {
    /// Reasons for which the records are skipped.
    pub report: Box<RecordReport>,
    /// Advice to the user, appended to the message; may be empty.
    pub hint: String,
}

impl ElementFile {
    /// Median of the epochs, rounded down to the minute; `None` for a file without element sets.
    pub fn median_epoch(&self) -> Option<UtcInstant> {
        const MINUTE_NS: i64 = 60_000_000_000;
        let mut epochs: Vec<UtcInstant> = self.sets.iter().map(|s| s.elements().epoch).collect();
        epochs.sort_unstable();
        let middle = epochs.get(epochs.len() / 2)?.unix_nanos();
        Some(UtcInstant::from_unix_nanos(middle.div_euclid(MINUTE_NS) * MINUTE_NS))
    }

    /// Create the constellation of the satellites that `selection` chooses, with a report about every record.
    ///
    /// # Errors
    /// No element set can be used.
    pub fn constellation(&self, selection: &Selection) -> Result<Constellation, SelectionError> {
        let start = selection.start.or_else(|| self.median_epoch());
        let epoch = start.unwrap_or(UtcInstant::from_unix_nanos(0));
        let mut skipped = self.skipped.clone();
        let mut used = Vec::new();
        for (set, is_nearest) in self.sets.iter().zip(self.nearest_in_time(epoch)) {
            match if is_nearest {
                selection.skip_reason(set, epoch)
            } else {
                Some(SkipReason::Duplicate)
            } {
                Some(reason) => skipped.push(Skipped { name: set.elements().name.clone(), reason }),
                None => used.push(set.clone()),
            }
        }
        selection.satellites.retain_places(&mut used, epoch, &mut skipped);
        let records = self.sets.len() + self.skipped.len();
        let report = RecordReport { file: self.file.clone(), records, used: used.len(), skipped };
        if used.is_empty() {
            return Err(self.no_usable_set(report));
        }
        let stem = Path::new(&self.file).file_stem().unwrap_or_default().to_string_lossy();
        Ok(Constellation {
            name: stem.trim_end_matches(".tle").to_owned(),
            description: format!("{} satellites by element set", used.len()),
            source: self.file.clone(),
            epoch,
            minimum_elevation_deg: selection.minimum_elevation_deg,
            satellite_prefix: None,
            isl: true,
            gateways: None,
            pops: None,
            propagator: Propagator::Sgp4,
            longest_ground_link: None,
            longest_isl: None,
            shells: Vec::new(),
            geostationary: Vec::new(),
            element_sets: used,
            report: Some(report),
        })
    }

    /// Return for each set whether it is the one to use for its satellite: the set with the epoch
    /// nearest to `time`; of equally near ones the first in the file.
    fn nearest_in_time(&self, time: UtcInstant) -> Vec<bool> {
        let distance =
            |set: &ElementSet| set.elements().epoch.unix_nanos().abs_diff(time.unix_nanos());
        let mut nearest: BTreeMap<u64, usize> = BTreeMap::new();
        for (index, set) in self.sets.iter().enumerate() {
            let best = nearest.entry(set.elements().catalogue_number).or_insert(index);
            if distance(set) < distance(&self.sets[*best]) {
                *best = index;
            }
        }
        let mut is_nearest = vec![false; self.sets.len()];
        nearest.into_values().for_each(|index| is_nearest[index] = true);
        is_nearest
    }

    fn no_usable_set(&self, report: RecordReport) -> SelectionError {
        let kinds = report.kinds();
        let hint = match self.median_epoch() {
            Some(epoch) if kinds.contains_key("stale") => {
                format!("; most epochs are near {epoch}: choose a start near that")
            }
            _ if kinds.contains_key(SkipReason::FilteredOut.kind()) => {
                "; the key satellites selects none of them: change it".to_owned()
            }
            _ => String::new(),
        };
        SelectionError { report: Box::new(report), hint }
    }
}

impl Selection {
    /// Reason for which a set cannot be used or is not chosen; `None` if it is used.
    fn skip_reason(&self, set: &ElementSet, start: UtcInstant) -> Option<SkipReason> {
        if !self.satellites.wants_name(&set.elements().name) {
            return Some(SkipReason::FilteredOut);
        }
        let age_ns = set.elements().epoch.unix_nanos().abs_diff(start.unix_nanos());
        if age_ns > self.stale_after.as_nanos() {
            return Some(SkipReason::Stale { age_days: age_ns as f64 / 86_400e9 });
        }
        [start, start.after(self.duration)].into_iter().find_map(|time| match set.state(time) {
            Err(what) => Some(SkipReason::NotPropagated(what)),
            Ok((position, _)) => (position.length() < EQUATORIAL_RADIUS_M + LOWEST_ALTITUDE_M)
                .then_some(SkipReason::Decayed),
        })
    }
}

/// Filter of satellites: all, or those with certain names, shells and planes.
///
/// Its text form is `name=STARLINK-1*,STARLINK-2??; shell=0,2; plane=0-35`, with each part at most once. Shells
/// are numbered as in [`Formation`], planes within their shell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SatelliteFilter {
    names: Vec<String>,
    shells: Vec<RangeInclusive<u32>>,
    planes: Vec<RangeInclusive<u32>>,
}

/// Error of parsing a [`SatelliteFilter`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} is not a filter of satellites: {what}; expected \"all\" or parts such as \
     \"name=STARLINK-1*; shell=0; plane=0-35\"",
    Quoted(text)
)]
pub struct FilterError {
    /// Text that cannot be parsed.
    pub text: String,
    /// Description of the error.
    pub what: String,
}

impl SatelliteFilter {
    /// Whether the filter restricts shells or planes.
    pub fn chooses_places(&self) -> bool {
        !(self.shells.is_empty() && self.planes.is_empty())
    }

    /// Whether the filter restricts names.
    pub fn chooses_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the filter restricts planes.
    pub fn chooses_planes(&self) -> bool {
        !self.planes.is_empty()
    }

    /// Whether the filter includes a shell.
    pub fn wants_shell(&self, shell: u32) -> bool {
        self.shells.is_empty() || self.shells.iter().any(|range| range.contains(&shell))
    }

    fn wants_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|pattern| matches(pattern, name))
    }

    fn wants_plane(&self, plane: u32) -> bool {
        self.planes.is_empty() || self.planes.iter().any(|range| range.contains(&plane))
    }

    /// Keep the sets whose satellites are in the chosen shells and planes of the formation at
    /// `time`; append the others to `skipped`.
    fn retain_places(
        &self,
        used: &mut Vec<ElementSet>,
        time: UtcInstant,
        skipped: &mut Vec<Skipped>,
    ) {
        if !self.chooses_places() {
            return;
        }
        let formation = Formation::recover(used, time);
        let mut places = formation.places.iter();
        used.retain(|set| {
            let place = places.next().copied().flatten();
            let wanted =
                place.is_some_and(|p| self.wants_shell(p.shell) && self.wants_plane(p.plane));
            if !wanted {
                let name = set.elements().name.clone();
                skipped.push(Skipped { name, reason: SkipReason::FilteredOut });
            }
            wanted
        });
    }
}

impl FromStr for SatelliteFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        if text.trim() == "all" {
            return Ok(filter);
        }
        let wrong = |what: String| FilterError { text: text.to_owned(), what };
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, values) = part
                .split_once('=')
                .ok_or_else(|| wrong(format!("{} has no \"=\"", Quoted(part))))?;
            let values: Vec<&str> = values.split(',').map(str::trim).collect();
            let ranges = || values.iter().map(|v| range(v)).collect::<Option<Vec<_>>>();
            let no_numbers =
                || wrong(format!("{} has no numbers or ranges such as 0-35", Quoted(part)));
            match key.trim() {
                "name" => filter.names = values.iter().map(|v| (*v).to_owned()).collect(),
                "shell" => filter.shells = ranges().ok_or_else(no_numbers)?,
                "plane" => filter.planes = ranges().ok_or_else(no_numbers)?,
                other => {
                    return Err(wrong(format!("{} is not name, shell or plane", Quoted(other))));
                }
            }
        }
        if filter == Self::default() {
            return Err(wrong("it is empty".to_owned()));
        }
        Ok(filter)
    }
}

fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

/// Whether a name matches a pattern in which `*` stands for any text and `?` for any character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // Positions of the last `*` in the pattern and of the end of its match in the name. If the rest
    // does not match, the next attempt lets the `*` match one character more.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    (at, in_name) = (star + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_shells_do() {
        for (pattern, name, expected) in [
            ("STARLINK-1*", "STARLINK-1008", true),
            ("STARLINK-1*", "STARLINK-2008", false),
            ("STARLINK-10?8", "STARLINK-1008", true),
            ("*-1*8", "STARLINK-1008", true),
            ("*-1*8", "STARLINK-1009", false),
            ("STARLINK-1008", "STARLINK-1008", true),
            ("STARLINK", "STARLINK-1008", false),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn filters_are_read_and_wrong_ones_named() {
        let filter: SatelliteFilter = "name=A*, B; shell=0,2-3; plane=7".parse().unwrap();
        assert!(filter.wants_name("ABC") && filter.wants_name("B") && !filter.wants_name("C"));
        assert!(filter.wants_shell(3) && !filter.wants_shell(1));
        assert!(filter.wants_plane(7) && !filter.wants_plane(0));
        assert_eq!("all".parse::<SatelliteFilter>().unwrap(), SatelliteFilter::default());
        for wrong in ["", "name", "shell=a", "planet=3", "plane=3-x"] {
            let message = wrong.parse::<SatelliteFilter>().unwrap_err().to_string();
            assert!(message.contains("expected \"all\""), "{message}");
        }
    }
}
