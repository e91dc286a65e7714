//! Properties of announcements for random paths and timings.

use proptest::prelude::*;
use skyhop_model::HandoverKind;
use skyhop_model::PathEventKind;
use skyhop_path::trace::{Endpoint, PathHeader};
use skyhop_path::{Frame, PathEvent, PathTrace};
use skyhop_signal::schedule::HandoverGrid;
use skyhop_signal::{Announcement, Handover, KindTiming, Timing, TimingError, path};
use skyhop_units::{Duration, Instant, UtcInstant};

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Path whose frames begin with these events: time (ms), kind, outage (ms).
fn trace(events: &[(u64, PathEventKind, u64)]) -> PathTrace {
    let ends = ["a", "b"].map(Endpoint::named);
    let header = PathHeader::plain("test", ends, Duration::ZERO, Duration::ZERO);
    let mut frames: Vec<Frame> = Vec::new();
    for (at, kind, outage) in events {
        let event = PathEvent { at: at_ms(*at), kind: *kind, hop: None, outage: ms(*outage) };
        match frames.last_mut().filter(|frame| frame.at == event.at) {
            Some(frame) => frame.events.push(event),
            None => frames.push(Frame {
                at: event.at,
                delay: Some(ms(10)),
                delay_back: Some(ms(10)),
                events: vec![event],
                ..Frame::default()
            }),
        }
    }
    PathTrace { header, frames }
}

fn events() -> impl Strategy<Value = Vec<(u64, PathEventKind, u64)>> {
    let event = (0_u64..60_000, prop::sample::select(PathEventKind::ALL.to_vec()), 0_u64..500);
    prop::collection::vec(event, 0..80).prop_map(|mut events| {
        events.sort_by_key(|(at, _, _)| *at);
        events
    })
}

fn timings() -> impl Strategy<Value = Timing> {
    let error = || {
        prop_oneof![
            Just(TimingError::None),
            Just(TimingError::ReportTiming),
            (0_u64..3_000).prop_map(|late| TimingError::Late(ms(late))),
            (0_u64..3_000).prop_map(|early| TimingError::Early(ms(early))),
        ]
    };
    let kind =
        || (0_u64..20_000, error()).prop_map(|(lead, error)| KindTiming { lead: ms(lead), error });
    (kind(), kind(), kind(), 0_u64..1_000, any::<u64>()).prop_map(
        |(end, intermediate, unknown, latency, seed)| Timing {
            end,
            intermediate,
            unknown,
            latency: ms(latency),
            seed,
        },
    )
}

proptest! {
    #[test]
    fn announcements_are_sorted_inside_the_run_and_as_wrong_as_they_say(
        events in events(), timing in timings(), until_ms in 1_u64..70_000
    ) {
        let until = at_ms(until_ms);
        let handovers = path::handovers(&trace(&events), &[]);
        let announced = timing.announce(handovers.iter().copied(), until);
        prop_assert!(announced.is_sorted_by_key(|a| (a.announced, a.at)));
        prop_assert!(announced.len() <= handovers.len());
        for announcement in &announced {
            prop_assert!(announcement.announced < until);
            let lead = timing.of(announcement.kind).lead;
            prop_assert_eq!(announcement.announced, announcement.at - lead + timing.latency);
            let is_near = |handover: &Handover| {
                let away = announcement.at.saturating_since(handover.at)
                    .max(handover.at.saturating_since(announcement.at));
                away <= announcement.error && announcement.kind == handover.kind
            };
            prop_assert!(handovers.iter().any(is_near), "{announcement:?}");
        }
        let again = timing.announce(handovers.iter().copied(), until);
        prop_assert_eq!(announced, again);
    }

    #[test]
    fn without_error_every_handover_in_reach_is_announced_in_time(
        events in events(), lead_ms in 0_u64..20_000
    ) {
        let timing = Timing::new(ms(lead_ms), TimingError::None, 0);
        let handovers = path::handovers(&trace(&events), &[]);
        let until = at_ms(60_000);
        let announced = timing.announce(handovers.iter().copied(), until);
        let said: Vec<Instant> = announced.iter().map(|a| a.at).collect();
        let in_reach: Vec<Instant> =
            handovers.iter().map(|h| h.at).filter(|at| *at - ms(lead_ms) < until).collect();
        prop_assert_eq!(said, in_reach);
    }

    #[test]
    fn a_grid_holds_every_moment_of_its_phase_and_no_other(
        start_ns in 0_i64..4_000_000_000_000_000_000, period_ms in 1_u64..60_000, offset_ms in 0_u64..90_000
    ) {
        let grid = HandoverGrid { period: ms(period_ms), offset: ms(offset_ms) };
        let until = at_ms(120_000);
        let moments: Vec<Instant> =
            grid.handovers(UtcInstant::from_unix_nanos(start_ns), until).map(|h| h.at).collect();
        let period_ns = i128::from(period_ms) * 1_000_000;
        for at in &moments {
            let utc_ns = i128::from(start_ns) + i128::from(at.as_nanos());
            prop_assert_eq!((utc_ns - i128::from(offset_ms) * 1_000_000).rem_euclid(period_ns), 0);
        }
        prop_assert!(moments.windows(2).all(|pair| pair[1] - pair[0] == ms(period_ms)));
        let first = moments.first().copied().unwrap_or(until);
        let last = moments.last().copied().unwrap_or(Instant::START);
        prop_assert!(first.as_nanos() < period_ms * 1_000_000 && last + ms(period_ms) >= until);
    }
}

#[test]
fn simultaneous_events_are_announced_once() {
    let events = [
        (1_000, PathEventKind::Intermediate, 0),
        (1_000, PathEventKind::End, 80),
        (1_000, PathEventKind::Intermediate, 0),
        (2_000, PathEventKind::Reroute, 0),
        (3_000, PathEventKind::Lost, 0),
    ];
    let found = path::handovers(&trace(&events), &[(at_ms(2_000), ms(5)), (at_ms(500), ms(7))]);
    let expected = [
        (500, 7, HandoverKind::Unknown),
        (1_000, 80, HandoverKind::End),
        (2_000, 5, HandoverKind::Intermediate),
        (3_000, 0, HandoverKind::Unknown),
    ];
    let expected = expected.map(|(at, outage, kind)| Handover {
        at: at_ms(at),
        outage: ms(outage),
        error: ms(0),
        kind,
    });
    assert_eq!(found, expected);
}

#[test]
fn starlinks_grid_is_announced_at_its_seconds() {
    let grid = HandoverGrid { period: Duration::from_secs(15), offset: Duration::from_secs(12) };
    let start = "2026-03-01T10:20:20Z".parse().unwrap();
    let until = at_ms(60_000);
    let timing = Timing::new(ms(500), TimingError::None, 0);
    let announced = timing.announce(grid.handovers(start, until), until);
    let found: Vec<(Instant, Instant)> = announced.iter().map(|a| (a.announced, a.at)).collect();
    let expected = [7_000, 22_000, 37_000, 52_000].map(|at| (at_ms(at - 500), at_ms(at)));
    assert_eq!(found, expected);
}

#[test]
fn nothing_is_announced_before_the_run() {
    let timing = Timing::new(ms(1_000), TimingError::Early(ms(500)), 0);
    let handover =
        Handover { at: at_ms(300), outage: ms(10), error: ms(0), kind: HandoverKind::End };
    let [said] = timing.announce([handover], at_ms(10_000))[..] else { panic!("one announcement") };
    let zero = Instant::START;
    let expected = Announcement {
        announced: zero,
        at: zero,
        outage: ms(10),
        error: ms(500),
        kind: HandoverKind::End,
    };
    assert_eq!(said, expected);
}

#[test]
fn a_timing_error_is_written_as_it_is_read() {
    for text in ["none", "report-timing", "200 ms", "-1.5 s"] {
        let error: TimingError = text.parse().unwrap();
        assert_eq!(error.to_string(), text);
    }
    assert_eq!("-0.2 s".parse(), Ok(TimingError::Early(ms(200))));
    for text in ["", "-", "report", "0.2", "--1 s"] {
        let wrong = text.parse::<TimingError>().unwrap_err().to_string();
        assert!(wrong.contains("expected none, report-timing, or a duration"), "{wrong}");
    }
}

#[test]
fn each_kind_of_handover_has_its_own_lead_and_error_and_all_have_one_latency() {
    let exact = KindTiming { lead: ms(0), error: TimingError::None };
    let early = KindTiming { lead: ms(500), error: TimingError::Late(ms(100)) };
    let unknown = KindTiming { lead: ms(1_000), error: TimingError::None };
    let timing = Timing { end: exact, intermediate: early, unknown, latency: ms(20), seed: 0 };
    let handovers = [HandoverKind::End, HandoverKind::Intermediate, HandoverKind::Unknown]
        .map(|kind| Handover { at: at_ms(10_000), outage: ms(0), error: ms(0), kind });
    let said = timing.announce(handovers, Instant::NEVER);
    let found: Vec<_> = said.iter().map(|a| (a.kind, a.announced, a.at, a.error)).collect();
    let expected = [
        (HandoverKind::Unknown, at_ms(9_020), at_ms(10_000), ms(0)),
        (HandoverKind::Intermediate, at_ms(9_620), at_ms(10_100), ms(100)),
        (HandoverKind::End, at_ms(10_020), at_ms(10_000), ms(0)),
    ];
    assert_eq!(found, expected);
    assert_eq!(timing.longest_lead(), ms(1_000));
}
