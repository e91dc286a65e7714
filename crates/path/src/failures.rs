//! Failures of satellites, of the lasers between them, and of sites, each during some time of a run.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use skyhop_orbit::Vec3;
use skyhop_units::{Instant, Ratio};

use crate::outage::Draw;
use crate::request::PathError;

/// Part of a network that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// Satellite with this number: no site sees it, and it has no lasers.
    Satellite(u32),
    /// Laser between two satellites, in both directions.
    Laser(u32, u32),
    /// Site with this index: it sends and receives nothing.
    Site(u32),
}

/// Failure of a part, from one time on until another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Part of the network that fails.
    pub part: Part,
    /// First instant of the failure.
    pub from: Instant,
    /// First instant after the failure; [`Instant::NEVER`] if it lasts.
    pub until: Instant,
}

/// Time during which a part has failed: the first instant, and the first one after it.
pub type FailureTime = [Instant; 2];

/// Failures of all parts during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Failure>", into = "Vec<Failure>")]
pub struct Failures {
    /// Times of each part's failures, in order and apart from each other. A laser has its lower number first.
    times: BTreeMap<Part, Vec<FailureTime>>,
    /// Times at which a failure begins or ends, in ascending order.
    changes: Vec<Instant>,
}

impl From<Vec<Failure>> for Failures {
    fn from(all: Vec<Failure>) -> Self {
        let mut times: BTreeMap<Part, Vec<FailureTime>> = BTreeMap::new();
        for Failure { part, from, until } in all.into_iter().filter(|one| one.from < one.until) {
            times.entry(part.in_order()).or_default().push([from, until]);
        }
        for of_part in times.values_mut() {
            *of_part = joined(std::mem::take(of_part));
        }
        let mut changes: Vec<Instant> = times.values().flatten().flatten().copied().collect();
        changes.sort_unstable();
        changes.dedup();
        Self { times, changes }
    }
}

impl From<Failures> for Vec<Failure> {
    fn from(failures: Failures) -> Self {
        let of_part = |(part, times): (Part, Vec<FailureTime>)| {
            times.into_iter().map(move |[from, until]| Failure { part, from, until })
        };
        failures.times.into_iter().flat_map(of_part).collect()
    }
}

impl Part {
    fn in_order(self) -> Self {
        match self {
            Self::Laser(a, b) => Self::Laser(a.min(b), a.max(b)),
            other => other,
        }
    }
}

/// Join the times that overlap or meet.
fn joined(mut times: Vec<FailureTime>) -> Vec<FailureTime> {
    times.sort_unstable();
    let mut joined: Vec<FailureTime> = Vec::new();
    for [from, until] in times {
        match joined.last_mut() {
            Some([_, end]) if from <= *end => *end = (*end).max(until),
            _ => joined.push([from, until]),
        }
    }
    joined
}

impl Failures {
    /// Whether nothing ever fails.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Parts that fail at some time, in ascending order.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.times.keys().copied()
    }

    /// Check that the constellation has the satellites that fail.
    ///
    /// # Errors
    /// The constellation has fewer satellites.
    pub(crate) fn check(&self, satellites: u32) -> Result<(), PathError> {
        let highest = self.parts().filter_map(|part| match part {
            Part::Satellite(number) | Part::Laser(_, number) => Some(number),
            Part::Site(_) => None,
        });
        match highest.max().filter(|number| *number >= satellites) {
            Some(number) => Err(PathError::Option {
                what: format!("satellite {number} fails, but there are {satellites}"),
                expected: "a number below that",
            }),
            None => Ok(()),
        }
    }

    /// Times during which a satellite or a site has failed, or a laser or one of its satellites.
    pub fn times_of(&self, part: Part) -> Vec<FailureTime> {
        let own = |part: Part| self.times.get(&part.in_order()).into_iter().flatten().copied();
        match part {
            Part::Laser(a, b) => {
                let ends = [a, b].into_iter().flat_map(|end| own(Part::Satellite(end)));
                joined(own(part).chain(ends).collect())
            }
            other => own(other).collect(),
        }
    }

    /// First time after `now` at which a failure begins or ends; [`Instant::NEVER`] if there is none.
    pub(crate) fn next_change(&self, now: Instant) -> Instant {
        let next = self.changes.partition_point(|at| *at <= now);
        self.changes.get(next).copied().unwrap_or(Instant::NEVER)
    }
}

/// Parts that have failed at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedParts {
    parts: HashSet<Part>,
    /// Time from which on, and until which, these are the parts; `None` before the first [`Self::update`].
    holds: Option<FailureTime>,
}

impl FailedParts {
    /// Set the parts to those that have failed at `now`.
    pub(crate) fn update(&mut self, failures: &Failures, now: Instant) {
        if self.holds.is_some_and(|[from, until]| (from..until).contains(&now)) {
            return;
        }
        self.holds = Some([now, failures.next_change(now)]);
        let at_now = |times: &[FailureTime]| times.iter().any(|[a, b]| (*a..*b).contains(&now));
        let failed = failures.times.iter().filter(|(_, times)| at_now(times));
        self.parts = failed.map(|(part, _)| *part).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn has_site(&self, site: usize) -> bool {
        !self.is_empty() && self.parts.contains(&Part::Site(site as u32))
    }

    pub(crate) fn has_satellite(&self, satellite: u32) -> bool {
        !self.is_empty() && self.parts.contains(&Part::Satellite(satellite))
    }

    /// Whether a laser itself has failed; those of failed satellites do not count.
    pub(crate) fn has_laser(&self, a: u32, b: u32) -> bool {
        !self.is_empty() && self.parts.contains(&Part::Laser(a, b).in_order())
    }

    /// Take the positions of failed satellites away, so that no site sees them and no laser reaches them.
    pub(crate) fn blank(&self, positions: &mut [Vec3]) {
        for part in &self.parts {
            if let Part::Satellite(number) = part
                && let Some(position) = positions.get_mut(*number as usize)
            {
                *position = Vec3::new(f64::NAN, f64::NAN, f64::NAN);
            }
        }
    }
}

/// Draw a share of all satellites, rounded to a whole number; a larger share with the same seed contains the smaller one.
pub fn drawn_satellites(satellites: u32, share: Ratio, seed: u64) -> Vec<u32> {
    let count = (f64::from(satellites) * share.fraction()).round() as usize;
    let key = |number: &u32| (Draw::new(seed, Instant::START, (*number).into()).bits(), *number);
    let mut order: Vec<u32> = (0..satellites).collect();
    order.sort_by_key(key);
    order.truncate(count);
    order.sort_unstable();
    order
}
