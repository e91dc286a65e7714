//! What is announced next: the same for the simulator, the live engine and the service.

use skyhop_units::{Duration, Instant, UtcInstant};

use crate::schedule::Grid;
use crate::{Announcement, Handover, Timing, TimingError};

/// Something to tell congestion controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    /// A handover is to come.
    Announced(Announcement),
    /// What was announced last has turned out to be wrong.
    Withdrawn,
}

/// The announcements to come. Sans-IO: whoever announces sleeps until [`Agenda::next`] and calls
/// [`Agenda::pop`].
///
/// It holds what is known beforehand, what [`Agenda::extend`] adds to it, and the moments of a grid, one at a
/// time, as long as [`Agenda::learn`] says that there is one.
#[derive(Debug, Clone)]
pub struct Agenda {
    timing: Timing,
    /// UTC at [`Instant::START`].
    start: UtcInstant,
    /// The next one last.
    listed: Vec<Announcement>,
    grid: Option<(Grid, Duration)>,
    /// The grid's next announcement, and the moment that it means, its timing's error apart.
    pending: Option<(Announcement, Instant)>,
    /// The last announcement of a grid that was made, likewise.
    last: Option<(Announcement, Instant)>,
    /// Counts what has its errors drawn together: every moment of a grid has one of its own.
    drawn: u64,
    withdrawn: bool,
}

impl Agenda {
    /// One of which nothing is known yet, in a run or a service that begins at `start`.
    pub fn new(timing: Timing, start: UtcInstant) -> Self {
        Self {
            timing,
            start,
            listed: Vec::new(),
            grid: None,
            pending: None,
            last: None,
            drawn: 0,
            withdrawn: false,
        }
    }

    /// Announcements that are known beforehand, ordered by when they are made.
    pub fn of(announcements: &[Announcement]) -> Self {
        let timing = Timing { lead: Duration::ZERO, error: TimingError::None, seed: 0 };
        let mut agenda = Self::new(timing, UtcInstant::from_unix_nanos(0));
        agenda.listed = announcements.iter().rev().copied().collect();
        agenda
    }

    /// Adds handovers whose times count from `from`; those before `now` come too late.
    pub fn extend(&mut self, now: Instant, from: UtcInstant, handovers: &[Handover]) {
        let moved = handovers.iter().filter_map(|one| {
            let at = from.after(one.at.saturating_since(Instant::START));
            let since_ns = at.unix_nanos() - self.start.unix_nanos();
            Some(Handover { at: Instant::from_nanos(u64::try_from(since_ns).ok()?), ..*one })
        });
        let announcements = self.drawn_timing().announce(moved, Instant::NEVER);
        self.drawn += 1;
        self.listed.extend(announcements.into_iter().filter(|one| one.at >= now));
        self.listed.sort_by_key(|one| std::cmp::Reverse((one.announced, one.at)));
    }

    /// Forgets what was listed: it is worked out anew.
    pub fn clear(&mut self) {
        self.listed.clear();
    }

    /// There is a grid, which is known as well as the duration says, or better than before; or there is
    /// none any more, and what was announced last is taken back.
    pub fn learn(&mut self, now: Instant, grid: Option<(Grid, Duration)>) {
        self.grid = grid;
        let is_ahead = self.last.is_some_and(|(last, _)| last.at > now);
        self.withdrawn = self.grid.is_none() && is_ahead;
        self.pending = None;
        self.plan_next(now);
    }

    /// UTC was set, so that [`Instant::START`] was at `start` as the clock has it now: a grid's moments are where
    /// the clock now says, what is listed stays where it was.
    pub fn set_start(&mut self, now: Instant, start: UtcInstant) {
        self.start = start;
        self.pending = None;
        self.plan_next(now);
    }

    /// UTC at a moment.
    pub fn utc(&self, at: Instant) -> UtcInstant {
        self.start.after(at.saturating_since(Instant::START))
    }

    /// When there is something to say next; `None` while nothing is known.
    pub fn next(&self) -> Option<Instant> {
        if self.withdrawn {
            return Some(Instant::START);
        }
        let listed = self.listed.last().map(|one| one.announced);
        let pending = self.pending.map(|(one, _)| one.announced);
        listed.into_iter().chain(pending).min()
    }

    /// What is to be said by `now`; call again until there is nothing more.
    pub fn pop(&mut self, now: Instant) -> Option<Statement> {
        if std::mem::take(&mut self.withdrawn) {
            self.last = None;
            return Some(Statement::Withdrawn);
        }
        if self.listed.last().is_some_and(|one| one.announced <= now) {
            return self.listed.pop().map(Statement::Announced);
        }
        let (announcement, moment) = self.pending.filter(|(one, _)| one.announced <= now)?;
        self.last = Some((announcement, moment));
        self.pending = None;
        self.drawn += 1;
        self.plan_next(now);
        Some(Statement::Announced(announcement))
    }

    /// Works out the announcement of the grid's first moment that has not been announced and is still to
    /// come.
    fn plan_next(&mut self, now: Instant) {
        const NS: Duration = Duration::from_nanos(1);
        let Some((grid, error)) = self.grid else { return };
        // The same moment may be a bit later by the last estimate than by the one before.
        let announced = self.last.map(|(_, moment)| moment + grid.period / 2);
        let after = announced.map_or(now, |moment| moment.max(now));
        let horizon = Instant::START + grid.period + NS;
        let Some(handover) = grid.handovers(self.utc(after).after(NS), horizon).next() else {
            return;
        };
        let moment = after + handover.at.saturating_since(Instant::START) + NS;
        let handover = Handover { at: moment, ..handover };
        let announced = self.drawn_timing().announce([handover], Instant::NEVER);
        self.pending = announced.first().map(|one| {
            let announced = one.announced.max(now);
            (Announcement { announced, error: one.error.max(error), ..*one }, moment)
        });
    }

    fn drawn_timing(&self) -> Timing {
        Timing { seed: self.timing.seed.wrapping_add(self.drawn), ..self.timing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    fn at_s(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    fn utc(text: &str) -> UtcInstant {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn grid(offset_ms: u64) -> Option<(Grid, Duration)> {
        let grid = Grid { period: PERIOD, offset: Duration::from_millis(offset_ms) };
        Some((grid, Duration::from_millis(10)))
    }

    /// One that begins at 00:00:01 UTC.
    fn agenda(lead_ms: u64, error: TimingError) -> Agenda {
        let timing = Timing { lead: Duration::from_millis(lead_ms), error, seed: 1 };
        Agenda::new(timing, utc("00:00:01"))
    }

    /// The moments that are announced, as each one's time comes.
    fn taken(agenda: &mut Agenda, count: usize) -> Vec<Instant> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let now = agenda.next().expect("there is something to come");
            match agenda.pop(now) {
                Some(Statement::Announced(one)) => taken.push(one.at),
                other => panic!("{other:?}"),
            }
        }
        taken
    }

    #[test]
    fn a_grid_goes_on_without_end_and_says_nothing_twice() {
        for lead_ms in [0, 500, 20_000] {
            let mut agenda = agenda(lead_ms, TimingError::None);
            agenda.learn(Instant::START, grid(12_000));
            let expected: Vec<Instant> = (0..5).map(|n| at_s(11.0 + 15.0 * f64::from(n))).collect();
            assert_eq!(taken(&mut agenda, 5), expected, "{lead_ms}");
        }
    }

    #[test]
    fn a_clock_that_is_set_moves_the_grid_and_leaves_the_list() {
        let mut agenda = agenda(500, TimingError::None);
        let listed = Announcement {
            announced: at_s(3.0),
            at: at_s(4.0),
            outage: Duration::ZERO,
            error: Duration::ZERO,
            kind: skyhop_model::HandoverKind::End,
        };
        agenda.listed = vec![listed];
        agenda.learn(Instant::START, grid(12_000));
        // Five seconds on.
        agenda.set_start(at_s(1.0), utc("00:00:06"));
        assert_eq!(taken(&mut agenda, 2), [at_s(4.0), at_s(6.0)]);
    }

    #[test]
    fn every_moment_of_a_grid_is_announced_once_however_wrong() {
        let mut agenda = agenda(500, TimingError::ReportTiming);
        agenda.learn(Instant::START, grid(12_000));
        let mut errors_ns: Vec<i128> = taken(&mut agenda, 40)
            .iter()
            .enumerate()
            .map(|(index, at)| {
                let exact = at_s(11.0 + 15.0 * index as f64);
                i128::from(at.as_nanos()) - i128::from(exact.as_nanos())
            })
            .collect();
        assert!(errors_ns.iter().all(|error| error.abs() <= 1_600_000_000), "{errors_ns:?}");
        errors_ns.sort_unstable();
        errors_ns.dedup();
        assert!(errors_ns.len() > 35, "the errors repeat: {errors_ns:?}");
    }

    #[test]
    fn a_clock_that_is_compared_again_and_again_loses_nothing_and_repeats_nothing() {
        for (lead_ms, drift_ns) in [(0, 90_000_i64), (500, -90_000), (20_000, 90_000)] {
            let mut agenda = agenda(lead_ms, TimingError::None);
            let start_ns = utc("00:00:01").unix_nanos();
            agenda.learn(Instant::START, grid(12_000));
            let mut said = Vec::new();
            // Every 0.2 s, while NTP slews by 0.45 ms per second.
            for step in 0..1_500 {
                let now = at_s(0.2 * f64::from(step));
                while let Some(Statement::Announced(one)) = agenda.pop(now) {
                    said.push(agenda.utc(one.at).unix_nanos());
                }
                let start = UtcInstant::from_unix_nanos(start_ns + drift_ns * i64::from(step));
                agenda.set_start(now, start);
            }
            let apart: Vec<i64> = said.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(said.len() >= 20, "{lead_ms}: {said:?}");
            // With a long lead the clock moves by milliseconds from the announcement on.
            let exact = |ns: &i64| (ns - 15_000_000_000).abs() < 15_000_000;
            assert!(apart.iter().all(exact), "{lead_ms}: {apart:?}");
        }
    }

    #[test]
    fn what_is_learned_is_announced_once_and_taken_back_when_it_was_wrong() {
        let mut agenda = agenda(1_000, TimingError::None);
        assert_eq!((agenda.next(), agenda.pop(at_s(99.0))), (None, None));
        agenda.learn(Instant::START, grid(12_000));
        assert_eq!(taken(&mut agenda, 1), [at_s(11.0)]);
        // A bit later by a better estimate: not again.
        agenda.learn(at_s(10.5), grid(12_004));
        assert_eq!(taken(&mut agenda, 1), [at_s(26.004)]);
        // It is over, so that nothing need be taken back.
        agenda.learn(at_s(27.0), None);
        assert_eq!(agenda.next(), None);
        agenda.learn(at_s(30.0), grid(12_000));
        taken(&mut agenda, 1);
        agenda.learn(at_s(40.5), None);
        assert_eq!(agenda.pop(at_s(40.5)), Some(Statement::Withdrawn));
        assert_eq!((agenda.pop(at_s(40.5)), agenda.next()), (None, None));
    }

    #[test]
    fn what_is_added_comes_in_order_and_not_too_late() {
        let mut agenda = agenda(1_000, TimingError::None);
        let handovers = |seconds: &[f64]| -> Vec<Handover> {
            let one = |at: &f64| Handover {
                at: at_s(*at),
                outage: Duration::ZERO,
                error: Duration::ZERO,
                kind: skyhop_model::HandoverKind::End,
            };
            seconds.iter().map(one).collect()
        };
        agenda.extend(at_s(5.0), utc("00:00:03"), &handovers(&[1.0, 10.0]));
        agenda.extend(at_s(5.0), utc("00:00:00"), &handovers(&[0.5, 9.0]));
        assert_eq!(taken(&mut agenda, 2), [at_s(8.0), at_s(12.0)]);
        agenda.extend(at_s(20.0), utc("00:00:21"), &handovers(&[10.0]));
        agenda.clear();
        assert_eq!(agenda.next(), None);
    }
}
