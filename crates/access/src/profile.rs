//! Profiles of access links, as described by data/access/*.toml.

use serde::{Deserialize, Serialize};
use skyhop_model::{line_at, one_line, with_hint};
use skyhop_path::UtcGrid;
use skyhop_units::{Duration, Instant, UtcInstant};
use thiserror::Error;

use crate::process::{Process, Quantiles, check_quantiles};

/// Access link between a terminal and the Internet, by the distributions of its measured delays, rates and losses.
///
/// Parts that were not measured are absent: a path drawn from the profile then takes them from the scenario, or has
/// none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the file without its suffix.
    #[serde(skip)]
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Measurements from which the profile is fitted.
    pub source: String,
    /// Licence of the measurements.
    pub licence: String,
    /// Month or year of the measurements.
    pub date: String,
    /// Grid of the reconfigurations; `None` for a link without one.
    #[serde(default)]
    pub grid: Option<Grid>,
    /// Round trip, if it was measured as a whole.
    #[serde(default)]
    pub round_trip: Option<RoundTrip>,
    /// Time of processing and of the ground segment in a round trip, ms, in addition to the propagation delay of a
    /// computed path.
    #[serde(default)]
    pub ground_ms: f64,
    /// Hole at each mark of the grid, and the time after it.
    #[serde(default)]
    pub reconfiguration: Option<Reconfiguration>,
    /// Outages at other times, such as those of obstructions.
    #[serde(default)]
    pub outages: Option<Outages>,
    /// Direction from the terminal to the Internet.
    #[serde(default)]
    pub up: Way,
    /// Direction from the Internet to the terminal.
    #[serde(default)]
    pub down: Way,
    /// Goodness of fit: rows of the portrait, measured and drawn.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub fit: toml::Table,
}

/// Evenly spaced marks in UTC at which the operator reassigns satellites.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Time between two marks.
    pub period: Duration,
    /// Second of each UTC minute at which the first mark falls.
    pub offset: Duration,
}

/// Round trip of the link.
///
/// Half of the floor belongs to each direction. All of the wait belongs to the direction up, whose transmissions are
/// scheduled by request (Garcia and others, LEO-NET 2025): were it halved, a probe would see two different values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrip {
    /// Lowest round trip of a slot, ms.
    pub floor_ms: Process,
    /// Wait for transmissions on top of it, ms.
    pub wait_ms: Process,
}

/// One direction of the link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Lowest one-way delay of a slot, ms.
    #[serde(default)]
    pub floor_ms: Option<Process>,
    /// Wait for a transmission on top of it, ms.
    #[serde(default)]
    pub wait_ms: Option<Process>,
    /// Capacity over time, if it was measured.
    #[serde(default)]
    pub rate: Option<RateModel>,
    /// Random loss, if it was measured.
    #[serde(default)]
    pub loss: Option<Loss>,
}

/// Capacity of one direction: the product of a slow level, a fast fluctuation, and a factor by phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateModel {
    /// Level of each slot, Mbit/s.
    pub level_mbps: Process,
    /// Ratio of the capacity to the level.
    #[serde(default)]
    pub fluctuation: Option<Process>,
    /// Factors by the time since the last mark.
    #[serde(default)]
    pub phases: Vec<PhaseFactor>,
    /// Frames in which the link serves for a part of the time only.
    #[serde(default)]
    pub frames: Option<Frames>,
}

/// Factor of a rate in a part of each slot; 1 elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseFactor {
    /// Begin of the part, s after the mark; before the next mark if negative.
    pub from_s: f64,
    /// End of the part, in the same form.
    pub until_s: f64,
    /// Factor in this part.
    pub factor: f64,
}

/// Frames of a link that serves for a part of each frame only, at a rate that is higher accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Duration of a frame, ms.
    pub period_ms: f64,
    /// Share of a frame in which the link serves, above 0 to 1.
    pub busy: f64,
    /// Share of the rest of the frame over which the begin of service is spread at random, 0 to 1.
    #[serde(default)]
    pub spread: f64,
}

/// Random loss of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Probability that a packet is lost, independent of others.
    #[serde(default)]
    pub independent: f64,
    /// Bursts of loss; those of several kinds are independent.
    #[serde(default)]
    pub bursts: Vec<Bursts>,
}

/// One kind of bursts of loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Number of bursts that begin in a second, outside the `phases`.
    pub per_second: f64,
    /// Factors of `per_second` by the time since the last mark.
    #[serde(default)]
    pub phases: Vec<PhaseFactor>,
    /// Quantiles of a burst's duration, ms.
    pub lasts_ms: Quantiles,
    /// Quantiles of the probability that a packet in a burst is lost.
    pub loss: Quantiles,
    /// Rate of bursts in each slot as a ratio to `per_second`; 1 in every slot without it.
    #[serde(default)]
    pub level: Option<Process>,
    /// Correlation of the level's normal scores with those of the direction's capacity by slot, from -1 to 1.
    #[serde(default)]
    pub with_rate: f64,
}

/// Reconfiguration at each mark of the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconfiguration {
    /// Share of the marks with a hole, in which nothing is sent and packets wait.
    pub share: f64,
    /// Quantiles of the hole's duration, ms.
    pub hole_ms: Quantiles,
    /// Quantiles of the hole's begin, ms after the mark.
    pub begin_ms: Quantiles,
    /// Time after the hole in which waits are longer, ms.
    #[serde(default)]
    pub settling_ms: f64,
    /// Factor of the waits in that time.
    #[serde(default = "one")]
    pub settling_factor: f64,
}

fn one() -> f64 {
    1.0
}

/// Outages outside the marks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outages {
    /// Number of outages in an hour.
    pub per_hour: f64,
    /// Quantiles of an outage's duration, ms.
    pub lasts_ms: Quantiles,
}

/// Reason for which a profile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}{place}: {what}")]
pub struct ProfileError {
    /// Name of the file.
    pub file: String,
    /// Place in the file, such as " line 3"; empty if it is not known.
    pub place: String,
    /// Problem, and what was expected.
    pub what: String,
}

impl Profile {
    /// Parse the TOML text of the file `file` and check its values.
    ///
    /// # Errors
    /// The first problem, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        let error = |place, what| ProfileError { file: file.to_owned(), place, what };
        let mut profile: Self = toml::from_str(text).map_err(|wrong| {
            let line = wrong.span().map(|span| line_at(text, span.start));
            let place = line.map_or_else(String::new, |line| format!(" line {line}"));
            error(place, with_hint(&one_line(wrong.message())))
        })?;
        profile.check().map_err(|what| error(String::new(), what))?;
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        profile.name = name.strip_suffix(".toml").unwrap_or(name).to_owned();
        Ok(profile)
    }

    /// Whether a path drawn from the profile has a round trip of its own, without a computed path.
    pub fn has_delays(&self) -> bool {
        self.round_trip.is_some() || (self.up.floor_ms.is_some() && self.down.floor_ms.is_some())
    }

    /// Shortest time between two changes of a drawn path, apart from bursts and holes.
    pub(crate) fn shortest_step(&self) -> Duration {
        let round_trip = self.round_trip.iter().map(|round_trip| round_trip.wait_ms.every);
        let ways = [&self.up, &self.down].into_iter().flat_map(|way| {
            let rate = way.rate.as_ref();
            let frames = rate.and_then(|rate| rate.frames);
            let processes = [way.wait_ms.as_ref(), rate.and_then(|rate| rate.fluctuation.as_ref())];
            let frames = frames.map(|frames| Duration::from_secs_f64(frames.period_ms / 1e3));
            processes.into_iter().flatten().map(|process| process.every).chain(frames)
        });
        round_trip.chain(ways).min().unwrap_or(Duration::from_millis(100))
    }

    fn check(&self) -> Result<(), String> {
        within("ground_ms", self.ground_ms, 60_000.0)?;
        if let Some(grid) = &self.grid
            && grid.period < Duration::from_secs(1)
        {
            return Err(format!("grid.period is {}; expected at least 1 s", grid.period));
        }
        if let Some(RoundTrip { floor_ms, wait_ms }) = &self.round_trip {
            floor_ms.check(0.0).map_err(|what| format!("round_trip.floor_ms: {what}"))?;
            wait_ms.check(0.0).map_err(|what| format!("round_trip.wait_ms: {what}"))?;
        }
        if let Some(reconfiguration) = &self.reconfiguration {
            let hole = "reconfiguration.hole_ms";
            check_quantiles(&reconfiguration.hole_ms, 0.0).map_err(|w| format!("{hole}: {w}"))?;
            let begin = "reconfiguration.begin_ms";
            check_quantiles(&reconfiguration.begin_ms, -7_500.0)
                .map_err(|what| format!("{begin}: {what}"))?;
            within("reconfiguration.share", reconfiguration.share, 1.0)?;
            within("reconfiguration.settling_ms", reconfiguration.settling_ms, 60_000.0)?;
            within("reconfiguration.settling_factor", reconfiguration.settling_factor, 1_000.0)?;
        }
        if let Some(outages) = &self.outages {
            check_quantiles(&outages.lasts_ms, 0.0)
                .map_err(|what| format!("outages.lasts_ms: {what}"))?;
            within("outages.per_hour", outages.per_hour, 36_000.0)?;
        }
        self.up.check().map_err(|what| format!("up.{what}"))?;
        self.down.check().map_err(|what| format!("down.{what}"))
    }
}

/// Largest number of kinds of bursts, each of which has a random stream of its own.
const MOST_KINDS: usize = 8;

/// Check that a number lies between 0 and `most`; the error names its key. An infinite rate would draw forever.
fn within(key: &str, value: f64, most: f64) -> Result<(), String> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{key} is {value}; expected 0 to {most}"))
}

fn check_factors(phases: &[PhaseFactor]) -> Result<(), String> {
    phases.iter().try_for_each(|phase| within("phases.factor", phase.factor, 10_000.0))
}

impl Way {
    fn check(&self) -> Result<(), String> {
        for (name, process) in [("floor_ms", &self.floor_ms), ("wait_ms", &self.wait_ms)] {
            if let Some(process) = process {
                process.check(0.0).map_err(|what| format!("{name}: {what}"))?;
            }
        }
        if let Some(rate) = &self.rate {
            rate.level_mbps.check(0.0).map_err(|what| format!("rate.level_mbps: {what}"))?;
            if let Some(fluctuation) = &rate.fluctuation {
                fluctuation.check(0.0).map_err(|what| format!("rate.fluctuation: {what}"))?;
            }
            if let Some(frames) = &rate.frames {
                frames.check().map_err(|what| format!("rate.frames: {what}"))?;
            }
            check_factors(&rate.phases).map_err(|what| format!("rate.{what}"))?;
        }
        if let Some(loss) = &self.loss {
            within("loss.independent", loss.independent, 1.0)?;
            if loss.bursts.len() > MOST_KINDS {
                return Err(format!("loss.bursts: expected at most {MOST_KINDS} kinds"));
            }
        }
        for bursts in self.loss.iter().flat_map(|loss| &loss.bursts) {
            within("loss.bursts.per_second", bursts.per_second, 1_000.0)?;
            check_factors(&bursts.phases).map_err(|what| format!("loss.bursts.{what}"))?;
            check_quantiles(&bursts.lasts_ms, 0.0)
                .map_err(|what| format!("loss.bursts.lasts_ms: {what}"))?;
            check_quantiles(&bursts.loss, 0.0).map_err(|w| format!("loss.bursts.loss: {w}"))?;
            bursts.check_level(self.rate.is_some()).map_err(|w| format!("loss.bursts.{w}"))?;
        }
        Ok(())
    }
}

impl Bursts {
    fn check_level(&self, has_rate: bool) -> Result<(), String> {
        let Some(level) = &self.level else {
            return match self.with_rate {
                0.0 => Ok(()),
                _ => Err("with_rate needs level".to_owned()),
            };
        };
        level.check(0.0).map_err(|what| format!("level: {what}"))?;
        within("level", level.largest(), 1_000.0)?;
        if !(-1.0..=1.0).contains(&self.with_rate) {
            return Err(format!("with_rate is {}; expected -1 to 1", self.with_rate));
        }
        if self.with_rate != 0.0 && !has_rate {
            return Err("with_rate is given, but the direction has no rate".to_owned());
        }
        Ok(())
    }
}

impl Frames {
    fn check(&self) -> Result<(), String> {
        if !(1.0..=1_000.0).contains(&self.period_ms) {
            return Err(format!("period_ms is {}; expected 1 to 1000", self.period_ms));
        }
        if !(self.busy > 0.0 && self.busy <= 1.0 && (0.0..=1.0).contains(&self.spread)) {
            return Err("expected busy above 0 to 1, and spread from 0 to 1".to_owned());
        }
        Ok(())
    }
}

/// Slots of a path: the time since the last mark, for a path that begins at a time of UTC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    grid: UtcGrid,
    start: UtcInstant,
}

impl Phases {
    /// Slots of the grid, or of 15 s from the path's start without a grid.
    pub(crate) fn new(grid: Option<Grid>, start: UtcInstant) -> Self {
        let grid = match grid {
            Some(Grid { period, offset }) => UtcGrid { period, offset },
            None => UtcGrid { offset: UtcGrid::default().since(start), ..UtcGrid::default() },
        };
        Self { grid, start }
    }

    /// Number of the slot at `at`.
    pub(crate) fn slot(&self, at: Instant) -> i64 {
        self.grid.index(self.start.after(at - Instant::START))
    }

    /// Marks from the path's start until `end`, and the last one before the start.
    pub(crate) fn marks(&self, end: Instant) -> impl Iterator<Item = SignedTime> {
        let first_ns = -(self.grid.since(self.start).as_nanos() as i64);
        let period_ns = self.grid.period.as_nanos() as i64;
        let end_ns = end.as_nanos() as i64;
        (0..)
            .map(move |mark| first_ns + mark * period_ns)
            .take_while(move |at| *at < end_ns + period_ns)
            .map(SignedTime)
    }

    /// Factor at `at`: that of the first part that contains the time, 1 if none does.
    pub(crate) fn factor(&self, parts: &[PhaseFactor], at: Instant) -> f64 {
        let since_s = self.grid.since(self.start.after(at - Instant::START)).as_secs_f64();
        let before_s = since_s - self.grid.period.as_secs_f64();
        let contains = |part: &&PhaseFactor| {
            [since_s, before_s].iter().any(|s| (part.from_s..part.until_s).contains(s))
        };
        parts.iter().find(contains).map_or(1.0, |part| part.factor)
    }
}

/// Time relative to a path's start, ns, which may lie before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedTime(pub(crate) i64);

impl SignedTime {
    /// Time that is `seconds` later; the path's start if that lies before it.
    pub(crate) fn plus(self, seconds: f64) -> Instant {
        Instant::from_nanos((self.0 + (seconds * 1e9) as i64).max(0) as u64)
    }
}
