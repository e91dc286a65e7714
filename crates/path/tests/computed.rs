//! Properties of computed paths, whatever the places and the time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use proptest::prelude::*;
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Geodetic, LIGHT_M_PER_S, Vec3};
use skyhop_path::{
    BetweenFrames, Compat, EventKind, Frame, OutageModel, PathError, PathFrames, PathOptions,
    PathRequest, PathTrace, Place, Relay, TraceError, compute,
};
use skyhop_units::{Duration, Instant};

fn starlink() -> Constellation {
    let toml = include_str!("../../../data/constellations/starlink-shell1.toml");
    Constellation::parse(toml, "starlink-shell1.toml").unwrap()
}

/// Gateways every few degrees over North America.
fn gateways() -> Vec<Place> {
    let lattice = (0..5).flat_map(|row| (0..9).map(move |column| (row, column)));
    lattice
        .map(|(row, column)| {
            let (latitude_deg, longitude_deg) =
                (28.0 + 5.0 * f64::from(row), -123.0 + 6.0 * f64::from(column));
            Place::new(&format!("gateway {row}.{column}"), latitude_deg, longitude_deg)
        })
        .collect()
}

/// San Diego to New York for two minutes.
fn request(relay: Relay) -> PathRequest {
    let constellation = starlink();
    PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("San Diego", 32.881, -117.237),
        to: Place::new("New York", 40.845, -73.932),
        gateways: gateways(),
        relay,
        handover: "leoem".to_owned(),
        outage: OutageModel::Leoem,
        compat: Compat::None,
        step: Duration::from_secs(1),
        duration: Duration::from_secs(120),
        seed: 0,
        options: PathOptions::default(),
    }
}

fn computed(request: &PathRequest) -> PathTrace {
    compute(request, |_, _| ControlFlow::Continue(())).unwrap()
}

fn requests() -> impl Strategy<Value = PathRequest> {
    let place = |name: &'static str| {
        (28.0..49.0, -123.0..-75.0, 0.0..3_000.0).prop_map(
            move |(latitude_deg, longitude_deg, altitude_m)| Place {
                name: name.to_owned(),
                position: Geodetic { latitude_deg, longitude_deg, altitude_m },
            },
        )
    };
    let relay = prop_oneof![Just(Relay::Isl), Just(Relay::BentPipe)];
    (place("a"), place("b"), relay, 0_u64..100_000_000, 100_u64..5_000).prop_map(
        |(from, to, relay, offset_s, step_ms)| {
            let mut request = request(relay);
            request.start = request.start.after(Duration::from_secs(offset_s));
            request.step = Duration::from_millis(step_ms);
            request.duration = Duration::from_secs(40);
            PathRequest { from, to, ..request }
        },
    )
}

/// Where a node of a frame is.
fn position(node: i32, request: &PathRequest, satellites: &[Vec3]) -> Vec3 {
    let place = match node {
        -1 => &request.from,
        -2 => &request.to,
        id if (id as usize) < satellites.len() => return satellites[id as usize],
        id => &request.gateways[id as usize - satellites.len()],
    };
    EarthModel::Wgs84.site(place.position).position
}

/// Checks a frame against positions computed afresh.
fn check_geometry(frame: &Frame, request: &PathRequest) -> Result<(), TestCaseError> {
    let mut satellites = Vec::new();
    Ephemeris::new(&request.constellation, EarthModel::Wgs84)
        .earth_fixed(request.start.after(frame.at - Instant::START), &mut satellites);
    let at = |node: i32| position(node, request, &satellites);
    let straight_s = at(-1).distance_m(at(-2)) / LIGHT_M_PER_S;
    prop_assert!(frame.delay.unwrap().as_secs_f64() >= straight_s - 1e-8);
    for (hop, delay) in frame.nodes.windows(2).zip(&frame.hop_delays) {
        let true_s = at(hop[0]).distance_m(at(hop[1])) / LIGHT_M_PER_S;
        prop_assert!((delay.as_secs_f64() - true_s).abs() < 1e-9, "hop {hop:?} is off");
        check_elevation(hop, request, satellites.len(), &at)?;
    }
    Ok(())
}

/// Checks that a hop between ground and space is steep enough, and that the ground has no others.
fn check_elevation(
    hop: &[i32],
    request: &PathRequest,
    satellites: usize,
    at: &impl Fn(i32) -> Vec3,
) -> Result<(), TestCaseError> {
    let is_ground = |node: i32| node < 0 || node as usize >= satellites;
    let (ground, satellite) = match (is_ground(hop[0]), is_ground(hop[1])) {
        (false, false) => return Ok(()),
        (true, false) => (hop[0], hop[1]),
        (false, true) => (hop[1], hop[0]),
        (true, true) => return Err(TestCaseError::fail("a hop from ground to ground")),
    };
    let site = EarthModel::Wgs84.site(Geodetic::from_earth_fixed(at(ground)));
    let elevation_deg = site.elevation_deg(at(satellite));
    let minimum_deg = request.constellation.minimum_elevation_deg;
    prop_assert!(elevation_deg > minimum_deg - 1e-6, "{satellite} at {elevation_deg} deg");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn routes_are_simple_as_long_as_they_say_and_within_view(request in requests()) {
        for frame in PathFrames::new(&request).unwrap().filter(|frame| frame.delay.is_some()) {
            let distinct: BTreeSet<i32> = frame.nodes.iter().copied().collect();
            prop_assert_eq!(distinct.len(), frame.nodes.len());
            check_geometry(&frame, &request)?;
        }
    }

    #[test]
    fn every_change_of_the_route_has_its_events(request in requests()) {
        let satellites = request.constellation.satellites() as i32;
        let frames: Vec<Frame> = PathFrames::new(&request).unwrap().collect();
        for pair in frames.windows(2) {
            let (old, new) = (&pair[0], &pair[1]);
            prop_assert_eq!(new.events.is_empty(), old.nodes == new.nodes);
            prop_assert!(new.events.iter().all(|event| event.at == new.at));
            let kinds: Vec<EventKind> = new.events.iter().map(|event| event.kind).collect();
            match (old.delay, new.delay) {
                (Some(_), None) => prop_assert_eq!(kinds, [EventKind::Lost]),
                (None, Some(_)) => prop_assert_eq!(kinds, [EventKind::Restored]),
                (Some(_), Some(_)) => {
                    let ends = usize::from(old.nodes[1] != new.nodes[1])
                        + usize::from(old.nodes[old.nodes.len() - 2] != new.nodes[new.nodes.len() - 2]);
                    prop_assert_eq!(kinds.iter().filter(|k| **k == EventKind::End).count(), ends);
                    if kinds.contains(&EventKind::Reroute) {
                        prop_assert_eq!(kinds.len(), 1);
                    }
                    for event in new.events.iter().filter(|e| e.kind == EventKind::Intermediate) {
                        let hop = usize::from(event.hop.unwrap());
                        prop_assert!(hop > 0 && hop + 1 < new.hop_delays.len());
                        prop_assert!(new.nodes[hop..=hop + 1].iter().any(|n| *n >= satellites));
                    }
                }
                (None, None) => {}
            }
        }
    }

    #[test]
    fn an_end_keeps_its_satellite_for_16_s_or_until_the_path_breaks(request in requests()) {
        let mut since = [Instant::START; 2];
        let mut satellites: [Option<i32>; 2] = [None; 2];
        let minimum_deg = request.constellation.minimum_elevation_deg;
        let mut positions = Vec::new();
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        prop_assume!(request.relay == Relay::Isl);
        for frame in PathFrames::new(&request).unwrap().filter(|frame| frame.delay.is_some()) {
            ephemeris.earth_fixed(request.start.after(frame.at - Instant::START), &mut positions);
            let is = [frame.nodes[1], frame.nodes[frame.nodes.len() - 2]];
            for (end, place) in [&request.from, &request.to].into_iter().enumerate() {
                if satellites[end] == Some(is[end]) {
                    continue;
                }
                if let Some(was) = satellites[end] {
                    // Only a lost satellite (of either end: periods may coincide) cuts a period.
                    let site = EarthModel::Wgs84.site(place.position);
                    let gone = site.elevation_deg(positions[was as usize]) < minimum_deg;
                    let held = frame.at - since[end];
                    prop_assert!(gone || held >= Duration::from_secs(16), "{held} only");
                }
                (satellites[end], since[end]) = (Some(is[end]), frame.at);
            }
        }
    }
}

#[test]
fn frames_cover_the_duration_in_steps() {
    let mut request = request(Relay::Isl);
    request.step = Duration::from_millis(400);
    request.duration = Duration::from_millis(1_000);
    let trace = computed(&request);
    let times: Vec<u64> = trace.frames.iter().map(|frame| frame.at.as_nanos()).collect();
    assert_eq!(times, [0, 400_000_000, 800_000_000]);
    assert_eq!((trace.header.step_ns, trace.header.duration_ns), (400_000_000, 1_200_000_000));
    assert_eq!(trace.header.between_frames, BetweenFrames::Linear);
    assert!(trace.frames[0].events.is_empty());
}

#[test]
fn the_same_request_gives_the_same_trace() {
    for relay in Relay::ALL {
        let request = request(relay);
        assert_eq!(computed(&request), computed(&request));
    }
}

#[test]
fn bent_pipes_alternate_between_satellites_and_gateways() {
    let request = request(Relay::BentPipe);
    let trace = computed(&request);
    let satellites = request.constellation.satellites() as i32;
    for frame in trace.frames.iter().filter(|frame| frame.delay.is_some()) {
        for (index, node) in frame.nodes[1..frame.nodes.len() - 1].iter().enumerate() {
            assert_eq!(*node >= satellites, index % 2 == 1, "{:?}", frame.nodes);
        }
    }
}

#[test]
fn progress_is_told_and_may_stop_the_work() {
    let request = request(Relay::Isl);
    let mut heard = Vec::new();
    let result = compute(&request, |done, steps| {
        heard.push((done, steps));
        if done == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(result.unwrap_err(), PathError::Stopped { done: 3, steps: 120 });
    assert_eq!(heard, [(1, 120), (2, 120), (3, 120)]);
}

#[test]
fn a_path_that_never_exists_is_an_error() {
    // Beyond the reach of a 53-degree shell.
    let mut request = request(Relay::Isl);
    request.to = Place::new("South Pole", -90.0, 0.0);
    let error = compute(&request, |_, _| ControlFlow::Continue(())).unwrap_err();
    let (from, to) = ("San Diego".to_owned(), "South Pole".to_owned());
    assert_eq!(error, PathError::Trace(TraceError::NeverConnected { from, to }));
    // As a stream it begins with the loss.
    let first = PathFrames::new(&request).unwrap().next().unwrap();
    assert_eq!(first.events.len(), 1);
    assert_eq!((first.events[0].kind, first.events[0].hop), (EventKind::Lost, None));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let message = |change: fn(&mut PathRequest)| {
        let mut request = request(Relay::BentPipe);
        change(&mut request);
        let error = compute(&request, |_, _| ControlFlow::Continue(())).unwrap_err();
        let message = error.to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    assert!(message(|r| r.step = Duration::ZERO).contains("step is 0 s"));
    assert!(message(|r| r.duration = Duration::ZERO).contains("duration is 0 s"));
    assert!(message(|r| r.gateways.clear()).contains("gateways"));
    assert!(message(|r| r.handover = "best".to_owned()).contains("\"leoem\""));
    assert!(message(|r| r.from.position.latitude_deg = 91.0).contains("San Diego"));
    assert!(message(|r| r.gateways[3].position.longitude_deg = f64::NAN).contains("gateway 0.3"));
}

#[test]
fn names_are_read_back_and_unknown_ones_list_what_there_is() {
    for relay in Relay::ALL {
        assert_eq!(relay.name().parse::<Relay>().unwrap(), relay);
    }
    for compat in Compat::ALL {
        assert_eq!(compat.name().parse::<Compat>().unwrap(), compat);
    }
    for outage in [OutageModel::Leoem, OutageModel::None, "80 ms".parse().unwrap()] {
        assert_eq!(outage.to_string().parse::<OutageModel>().unwrap(), outage);
    }
    let message = "laser".parse::<Relay>().unwrap_err().to_string();
    assert!(message.contains("\"isl\" or \"bent-pipe\""), "{message}");
    let message = "80".parse::<OutageModel>().unwrap_err().to_string();
    assert!(message.contains("\"leoem\", \"none\" or a duration"), "{message}");
}
