//! Paths seen from their other end.

use proptest::prelude::*;
use skyhop_model::{End, PathEventKind};
use skyhop_path::import::{AccessDirection, MeasuredOptions, parse_csv};
use skyhop_path::{Endpoint, Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant, Rate};

use crate::measured::THROUGHPUT;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(mbps: u64) -> Rate {
    Rate::from_bits_per_second(mbps * 1_000_000)
}

/// Path with one frame over a terminal, a satellite, a gateway and the Internet: 5 ms more up than down.
fn access_path() -> PathTrace {
    let event =
        |at_ms, kind, hop| PathEvent { at: Instant::START + ms(at_ms), kind, hop, outage: ms(60) };
    let frame = Frame {
        nodes: vec![-1, 7, 100, -2],
        hop_delays: [10, 3, 20].map(ms).to_vec(),
        delay: Some(ms(33)),
        delay_back: Some(ms(28)),
        rate: Some(rate(15)),
        rate_back: Some(rate(150)),
        loss: Some(0.02),
        loss_back: Some(0.01),
        events: vec![event(0, PathEventKind::End, Some(0)), event(5, PathEventKind::Reroute, None)],
        ..Frame::default()
    };
    let ends = ["dish", "server"].map(Endpoint::named);
    let mut trace = PathTrace { frames: vec![frame], ..PathTrace::fixed(ends, ms(0), ms(1_000)) };
    trace.header.dish = Some(End::From);
    trace
}

#[test]
fn everything_that_has_a_direction_changes_it() {
    let mirrored = access_path().mirrored();
    assert_eq!(mirrored.validate(), Ok(()));
    let header = &mirrored.header;
    assert_eq!([&header.from.name, &header.to.name], ["server", "dish"]);
    assert_eq!(header.dish, Some(End::To));
    let frame = &mirrored.frames[0];
    assert_eq!(frame.nodes, [-1, 100, 7, -2]);
    // The terminal's hop has the difference between the directions.
    assert_eq!(frame.hop_delays, [20, 3, 5].map(ms));
    assert_eq!((frame.delay, frame.delay_back), (Some(ms(28)), Some(ms(33))));
    assert_eq!((frame.rate, frame.rate_back), (Some(rate(150)), Some(rate(15))));
    assert_eq!((frame.loss, frame.loss_back), (Some(0.01), Some(0.02)));
    let hops: Vec<_> = frame.events.iter().map(|event| (event.at, event.hop)).collect();
    assert_eq!(hops, [(Instant::START, Some(2)), (Instant::START + ms(5), None)]);
}

#[test]
fn a_rate_of_both_directions_stays_and_one_of_a_direction_moves() {
    let rates = |directed| {
        let mut trace = access_path();
        trace.header.directed = directed;
        trace.frames[0].rate_back = None;
        let frame = trace.mirrored().frames.remove(0);
        (frame.rate, frame.rate_back)
    };
    assert_eq!(rates(false), (Some(rate(15)), None));
    assert_eq!(rates(true), (None, Some(rate(15))));
}

#[test]
fn a_measured_downlink_is_the_measured_uplink_seen_from_the_other_end() {
    let import = |direction| {
        let options = MeasuredOptions { direction: Some(direction), ..MeasuredOptions::default() };
        parse_csv(THROUGHPUT.as_bytes(), &options).unwrap().trace
    };
    let (down, up) = (import(AccessDirection::Down), import(AccessDirection::Up));
    assert_eq!((down.header.dish, up.header.dish), (Some(End::To), Some(End::From)));
    assert_eq!(down.mirrored().frames, up.frames);
}

prop_compose! {
    fn frames()(
        hops in prop::collection::vec(1..50_000_000_u64, 0..6),
        more_ns in 0..30_000_000_u64,
        from_dish in any::<bool>(),
        rates in any::<(Option<u32>, u32)>(),
        losses in any::<(Option<bool>, Option<bool>)>(),
        event_hop in prop::option::of(0..6_u16),
    ) -> Vec<Frame> {
        let mut hop_delays: Vec<Duration> = hops.into_iter().map(Duration::from_nanos).collect();
        let back: Duration = hop_delays.iter().copied().sum();
        let there = back + Duration::from_nanos(more_ns);
        let terminal = if from_dish { hop_delays.first_mut() } else { hop_delays.last_mut() };
        if let Some(hop) = terminal {
            *hop += Duration::from_nanos(more_ns);
        }
        let inner = 0..hop_delays.len().saturating_sub(1) as i32;
        let nodes: Vec<i32> = match hop_delays.len() {
            0 => Vec::new(),
            _ => [-1].into_iter().chain(inner).chain([-2]).collect(),
        };
        let hop = event_hop.filter(|hop| usize::from(*hop) < hop_delays.len());
        let event = PathEvent { at: Instant::START, kind: PathEventKind::End, hop, outage: ms(1) };
        let bps = |rate: u32| Rate::from_bits_per_second(rate.into());
        vec![Frame {
            nodes,
            hop_delays,
            delay: Some(there),
            delay_back: Some(back),
            rate: Some(bps(rates.1)),
            rate_back: rates.0.map(bps),
            loss: losses.0.map(|high| if high { 0.5 } else { 0.1 }),
            loss_back: losses.1.map(|high| if high { 0.6 } else { 0.2 }),
            events: vec![event],
            ..Frame::default()
        }, Frame { at: Instant::START + ms(5), ..Frame::default() }]
    }
}

proptest! {
    #[test]
    fn a_path_mirrored_twice_is_the_path(frames in frames(), directed in any::<bool>()) {
        for dish in [End::From, End::To] {
            let mut path = PathTrace { frames: frames.clone(), ..access_path() };
            path.header.dish = Some(dish);
            path.header.directed = directed;
            // Only the terminal's hop differs between the directions.
            let hops = &path.frames[0].hop_delays;
            let hop = if dish == End::From { hops.first() } else { hops.last() };
            let more = path.frames[0].delay.unwrap() - path.frames[0].delay_back.unwrap();
            prop_assume!(hop.is_none_or(|hop| *hop > more));
            let mirrored = path.clone().mirrored();
            prop_assert_eq!(mirrored.validate(), Ok(()));
            prop_assert_eq!(mirrored.mirrored(), path);
        }
    }
}
