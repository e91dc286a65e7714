//! What is to be announced next, in UTC.

use skyhop_model::HandoverKind;
use skyhop_signal::schedule::Grid;
use skyhop_signal::{Announcement, Handover, Timing, path};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::ServiceSource;
use super::forecaster::Forecaster;
use super::wall_clock::WallClock;
use crate::error::LiveError;

/// How far ahead a grid is worked out.
const PERIODS_AHEAD: u64 = 2;

/// The announcements to come, and when each is made.
#[derive(Debug)]
pub(super) struct Upcoming {
    source: Source,
    timing: Timing,
    /// The next one last.
    planned: Vec<Due>,
    /// The grid's moments up to this one have been planned; its own, without the timing's error.
    after: UtcInstant,
    /// The moment that was announced last.
    said: Option<UtcInstant>,
    /// How often the grid was planned: each time its errors are others.
    plans: u64,
}

#[derive(Debug)]
enum Source {
    Grid {
        grid: Grid,
        error: Duration,
    },
    /// A grid that nobody knows yet.
    Unknown,
    Listed,
    Forecast(Box<Forecaster>),
}

/// An announcement whose times are in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) announced: UtcInstant,
    pub(super) at: UtcInstant,
    pub(super) outage: Duration,
    pub(super) error: Duration,
    pub(super) kind: HandoverKind,
}

impl Upcoming {
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn new(
        source: &ServiceSource,
        timing: Timing,
        now: UtcInstant,
    ) -> Result<Self, LiveError> {
        let (source, planned) = match source {
            ServiceSource::Grid { grid, error } => {
                (Source::Grid { grid: *grid, error: *error }, Vec::new())
            }
            ServiceSource::Watched { .. } => (Source::Unknown, Vec::new()),
            ServiceSource::Path(trace) => {
                let all = timing.announce(path::handovers(trace, &[]), Instant::NEVER);
                let planned = all.iter().rev().map(|one| due(one, now, Duration::ZERO)).collect();
                (Source::Listed, planned)
            }
            ServiceSource::Forecast(plan) => {
                (Source::Forecast(Box::new(Forecaster::start(plan, now)?)), Vec::new())
            }
        };
        let mut upcoming = Self { source, timing, planned, after: now, said: None, plans: 0 };
        upcoming.plan();
        Ok(upcoming)
    }

    /// UTC was set by `step_ns`: a grid's moments are where the clock now says, those of a path stay where
    /// they were, which the clock now calls otherwise. Satellites go by UTC, too.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn anchor(&mut self, now: UtcInstant, step_ns: i64) -> Result<(), LiveError> {
        let moved = |at: UtcInstant| UtcInstant::from_unix_nanos(at.unix_nanos() + step_ns);
        self.said = self.said.map(moved);
        match &mut self.source {
            Source::Grid { .. } => {
                self.planned.clear();
                self.after = now;
                self.plan();
            }
            Source::Unknown => {}
            Source::Listed => {
                for due in &mut self.planned {
                    (due.announced, due.at) = (moved(due.announced), moved(due.at));
                }
            }
            Source::Forecast(forecaster) => {
                self.planned.clear();
                forecaster.restart(now)?;
            }
        }
        Ok(())
    }

    /// Takes over what has been forecast meanwhile; what a user should know of it.
    ///
    /// # Errors
    /// The forecast cannot go on.
    pub(super) fn look_ahead(&mut self, now: UtcInstant) -> Result<Vec<String>, LiveError> {
        let Source::Forecast(forecaster) = &mut self.source else { return Ok(Vec::new()) };
        let news = forecaster.news(now, now.after(self.timing.lead))?;
        if news.is_anew {
            self.planned.clear();
        }
        for (start, piece) in news.pieces {
            let timing = Timing { seed: self.timing.seed.wrapping_add(self.plans), ..self.timing };
            self.plans += 1;
            let announcements = timing.announce(piece, Instant::NEVER);
            let dues = announcements.iter().map(|one| due(one, start, Duration::ZERO));
            self.planned.extend(dues.filter(|due| due.at >= now));
        }
        self.planned.sort_by_key(|due| std::cmp::Reverse((due.announced, due.at)));
        Ok(news.notes)
    }

    /// The grid is known now, better than before or no more; true: what was announced last is to be taken
    /// back.
    pub(super) fn learn(&mut self, now: UtcInstant, learned: Option<(Grid, Duration)>) -> bool {
        self.planned.clear();
        match learned {
            Some((grid, error)) => {
                // The same moment may be a bit later than by the grid before.
                let half = grid.period / 2;
                self.after = self.said.map_or(now, |said| said.after(half)).max(now);
                self.source = Source::Grid { grid, error };
                self.plan();
                false
            }
            None => {
                self.source = Source::Unknown;
                self.said.take().is_some_and(|said| said > now)
            }
        }
    }

    /// The next announcement, if its time has come.
    pub(super) fn take_due(&mut self, now: UtcInstant) -> Option<Due> {
        self.planned.last().filter(|next| next.announced <= now)?;
        let due = self.planned.pop()?;
        self.said = Some(due.at);
        self.plan();
        Some(due)
    }

    /// How long until then.
    pub(super) fn wait(&self, now: UtcInstant) -> Duration {
        let next = self.planned.last().map_or(i64::MAX, |next| next.announced.unix_nanos());
        Duration::from_nanos(u64::try_from(next.saturating_sub(now.unix_nanos())).unwrap_or(0))
    }

    pub(super) fn is_over(&self) -> bool {
        let goes_on = matches!(self.source, Source::Forecast(_) | Source::Unknown);
        self.planned.is_empty() && !goes_on
    }

    /// Works out the grid's next moments where none is left.
    fn plan(&mut self) {
        let Source::Grid { grid, error } = self.source else { return };
        if !self.planned.is_empty() {
            return;
        }
        let horizon = Instant::START + self.timing.lead + grid.period * PERIODS_AHEAD;
        let start = self.after.after(Duration::from_nanos(1));
        let handovers: Vec<Handover> = grid.handovers(start, horizon).collect();
        if let Some(last) = handovers.last() {
            self.after = start.after(last.at.saturating_since(Instant::START));
        }
        let timing = Timing { seed: self.timing.seed.wrapping_add(self.plans), ..self.timing };
        self.plans += 1;
        let announcements = timing.announce(handovers, Instant::NEVER);
        self.planned = announcements.iter().map(|one| due(one, start, error)).collect();
        self.planned.reverse();
    }
}

fn due(announcement: &Announcement, start: UtcInstant, error: Duration) -> Due {
    let utc = |at: Instant| start.after(at.saturating_since(Instant::START));
    Due {
        announced: utc(announcement.announced),
        at: utc(announcement.at),
        outage: announcement.outage,
        error: announcement.error.max(error),
        kind: announcement.kind,
    }
}

/// An announcement as listeners get it: its times on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) at_ns: u64,
    pub(super) at: UtcInstant,
    pub(super) outage: Duration,
    pub(super) error: Duration,
    pub(super) kind: HandoverKind,
}

impl Due {
    pub(super) fn announced_on(&self, clock: &WallClock, error: Duration) -> Said {
        let Self { at, outage, kind, .. } = *self;
        Said { at_ns: clock.monotonic_ns(at), at, outage, error, kind }
    }
}

#[cfg(test)]
mod tests {
    use skyhop_signal::TimingError;

    use super::*;

    fn utc(text: &str) -> UtcInstant {
        text.parse().unwrap()
    }

    fn starlink(lead_ms: u64, now: UtcInstant) -> Upcoming {
        let grid = Grid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
        let source = ServiceSource::Grid { grid, error: Duration::from_millis(3) };
        let lead = Duration::from_millis(lead_ms);
        Upcoming::new(&source, Timing { lead, error: TimingError::None, seed: 1 }, now).unwrap()
    }

    /// Announcements from `from` on, taken as their time comes.
    fn taken(upcoming: &mut Upcoming, from: UtcInstant, count: usize) -> Vec<(String, String)> {
        let mut now = from;
        let mut taken = Vec::new();
        while taken.len() < count {
            match upcoming.take_due(now) {
                Some(due) => taken.push((due.announced.to_string(), due.at.to_string())),
                None => now = now.after(upcoming.wait(now)),
            }
        }
        taken
    }

    #[test]
    fn a_grid_goes_on_without_end_and_says_nothing_twice() {
        for lead_ms in [0, 500, 20_000] {
            let now = utc("2026-01-01T00:00:01Z");
            let mut upcoming = starlink(lead_ms, now);
            let said: Vec<String> =
                taken(&mut upcoming, now, 5).into_iter().map(|(_, at)| at).collect();
            let expected = ["00:00:12", "00:00:27", "00:00:42", "00:00:57", "00:01:12"];
            assert_eq!(said, expected.map(|time| format!("2026-01-01T{time}Z")), "{lead_ms}");
            assert!(!upcoming.is_over());
        }
    }

    #[test]
    fn a_clock_that_is_set_moves_the_grid() {
        let now = utc("2026-01-01T00:00:01Z");
        let mut upcoming = starlink(500, now);
        assert_eq!(upcoming.wait(now), Duration::from_millis(10_500));
        let set = utc("2026-01-01T00:00:31Z");
        upcoming.anchor(set, 30_000_000_000).unwrap();
        let said = taken(&mut upcoming, set, 1);
        assert_eq!(said[0].1, "2026-01-01T00:00:42Z");
        // Set back: the same moments come again.
        upcoming.anchor(now, -30_000_000_000).unwrap();
        assert_eq!(taken(&mut upcoming, now, 1)[0].1, "2026-01-01T00:00:12Z");
    }

    #[test]
    fn every_moment_of_a_grid_is_announced_once_however_wrong() {
        let grid = Grid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let timing =
            Timing { lead: Duration::from_millis(500), error: TimingError::ReportTiming, seed: 1 };
        let now = utc("2026-01-01T00:00:01Z");
        let mut upcoming = Upcoming::new(&source, timing, now).unwrap();
        let said = taken(&mut upcoming, now, 40);
        let mut errors_ns = Vec::new();
        for (index, (_, at)) in said.iter().enumerate() {
            let exact = now.after(Duration::from_secs(11 + 15 * index as u64));
            errors_ns.push(utc(at).unix_nanos() - exact.unix_nanos());
        }
        assert!(errors_ns.iter().all(|error| error.abs() <= 1_600_000_000), "{errors_ns:?}");
        errors_ns.sort_unstable();
        errors_ns.dedup();
        assert!(errors_ns.len() > 35, "the errors repeat: {errors_ns:?}");
    }

    #[test]
    fn a_clock_that_is_set_leaves_a_paths_moments_where_they_are() {
        let now = utc("2026-01-01T00:00:01Z");
        let mut upcoming = starlink(0, now);
        upcoming.source = Source::Listed;
        let wait = upcoming.wait(now);
        let set = now.after(Duration::from_secs(100));
        upcoming.anchor(set, 100_000_000_000).unwrap();
        assert_eq!(upcoming.wait(set), wait);
    }
    #[test]
    fn what_is_learned_is_announced_once_and_taken_back_when_it_was_wrong() {
        let period = Duration::from_secs(15);
        let grid = |offset_ms: u64| {
            let grid = Grid { period, offset: Duration::from_millis(offset_ms) };
            Some((grid, Duration::from_millis(10)))
        };
        let now = utc("2026-01-01T00:00:01Z");
        let source = ServiceSource::Watched { interface: "wan".to_owned(), period };
        let lead = Duration::from_secs(1);
        let timing = Timing { lead, error: TimingError::None, seed: 1 };
        let mut upcoming = Upcoming::new(&source, timing, now).unwrap();
        assert!(!upcoming.is_over() && upcoming.take_due(now).is_none());
        assert!(!upcoming.learn(now, grid(12_000)));
        assert_eq!(taken(&mut upcoming, now, 1)[0].1, "2026-01-01T00:00:12Z");
        // A bit later by a better estimate: not again.
        let now = utc("2026-01-01T00:00:11.5Z");
        assert!(!upcoming.learn(now, grid(12_004)));
        assert_eq!(taken(&mut upcoming, now, 1)[0].1, "2026-01-01T00:00:27.004Z");
        assert!(!upcoming.learn(utc("2026-01-01T00:00:28Z"), None), "it is over");
        assert!(!upcoming.is_over() && upcoming.take_due(utc("2026-01-01T00:01:00Z")).is_none());
        let now = utc("2026-01-01T00:01:01Z");
        upcoming.learn(now, grid(12_000));
        taken(&mut upcoming, now, 1);
        assert!(upcoming.learn(utc("2026-01-01T00:01:11.5Z"), None));
    }
}
