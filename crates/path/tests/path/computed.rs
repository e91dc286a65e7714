//! Properties of computed paths for random places and times.

use skyhop_model::{Compat, PathEventKind, Relay};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use proptest::prelude::*;
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Geodetic, LIGHT_M_PER_S, Vec3};
use skyhop_path::handover::POLICIES;
use skyhop_path::{
    BetweenFrames, Frame, OutageModel, PathError, PathFrames, PathOptions, PathRequest, PathTrace,
    Place, TraceError, compute,
};
use skyhop_units::{Duration, Instant};

fn starlink() -> Constellation {
    let toml = include_str!("../../../../data/constellations/starlink-shell1.toml");
    Constellation::parse(toml, "starlink-shell1.toml").unwrap()
}

/// Lattice of gateways every few degrees over North America.
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

/// Request for a path from San Diego to New York for two minutes.
fn request(relay: Relay) -> PathRequest {
    let constellation = starlink();
    PathRequest {
        start: constellation.epoch,
        constellation,
        from: Place::new("San Diego", 32.881, -117.237),
        to: Place::new("New York", 40.845, -73.932),
        gateways: gateways(),
        relay: Some(relay),
        handover: "leoem".to_owned(),
        outage: OutageModel::Leoem,
        intermediate_outage: Duration::ZERO,
        compat: Compat::None,
        step: Duration::from_secs(1),
        duration: Duration::from_secs(120),
        seed: 0,
        options: PathOptions {
            pops: vec![
                Place::new("Los Angeles", 34.05, -118.24),
                Place::new("Denver", 39.74, -104.99),
            ],
            ..PathOptions::default()
        },
    }
}

/// Request for the same path over a geostationary satellite above the middle.
fn geo_request() -> PathRequest {
    let toml = include_str!("../../../../data/constellations/geo-americas.toml");
    let constellation = Constellation::parse(toml, "geo-americas.toml").unwrap();
    PathRequest { constellation, ..request(Relay::Geo) }
}

fn computed(request: &PathRequest) -> PathTrace {
    compute(request, |_, _| ControlFlow::Continue(())).unwrap()
}

fn requests() -> impl Strategy<Value = PathRequest> {
    let avoidance = prop_oneof![Just(None), (5.0..25.0).prop_map(Some)];
    requests_with(prop::sample::select(Relay::ALL), avoidance)
}

/// Requests over these relays that avoid this angle to the geostationary belt, degrees.
fn requests_with(
    relays: impl Strategy<Value = Relay>,
    avoidance_deg: impl Strategy<Value = Option<f64>>,
) -> impl Strategy<Value = PathRequest> {
    let place = |name: &'static str| {
        (28.0..49.0, -123.0..-75.0, 0.0..3_000.0).prop_map(
            move |(latitude_deg, longitude_deg, altitude_m)| Place {
                name: name.to_owned(),
                position: Geodetic { latitude_deg, longitude_deg, altitude_m },
            },
        )
    };
    let times = (0_u64..100_000_000, 100_u64..5_000);
    let habits = (relays, prop::sample::select(&POLICIES), avoidance_deg);
    (place("a"), place("b"), times, habits).prop_map(
        |(from, to, (offset_s, step_ms), (relay, policy, geo_avoidance_deg))| {
            let is_geo = relay == Relay::Geo;
            let mut request = if is_geo { geo_request() } else { request(relay) };
            request.start = request.start.after(Duration::from_secs(offset_s));
            request.step = Duration::from_millis(step_ms);
            request.duration = Duration::from_secs(40);
            request.handover = policy.name.to_owned();
            request.options.geo_avoidance_deg = geo_avoidance_deg.filter(|_| !is_geo);
            PathRequest { from, to, ..request }
        },
    )
}

/// Earth-fixed position of a node of a frame.
fn position(node: i32, request: &PathRequest, satellites: &[Vec3]) -> Vec3 {
    let place = match node {
        -1 => &request.from,
        -2 => &request.to,
        id if (id as usize) < satellites.len() => return satellites[id as usize],
        id => {
            let row = id as usize - satellites.len();
            let gateways = request.gateways.len();
            request.gateways.get(row).unwrap_or_else(|| &request.options.pops[row - gateways])
        }
    };
    EarthModel::Wgs84.site(place.position).position
}

/// Check a frame against independently computed positions.
fn check_geometry(frame: &Frame, request: &PathRequest) -> Result<(), TestCaseError> {
    let mut satellites = Vec::new();
    Ephemeris::new(&request.constellation, EarthModel::Wgs84)
        .earth_fixed(request.start.after(frame.at - Instant::START), &mut satellites);
    let at = |node: i32| position(node, request, &satellites);
    let straight_s = at(-1).distance(at(-2)) / LIGHT_M_PER_S;
    prop_assert!(frame.delay.unwrap().as_secs_f64() >= straight_s - 1e-8);
    for (hop, delay) in frame.nodes.windows(2).zip(&frame.hop_delays) {
        let true_s = at(hop[0]).distance(at(hop[1])) / LIGHT_M_PER_S;
        if request.relay.is_some_and(Relay::is_access) && hop[0] >= satellites.len() as i32 {
            // Fibre is slower than light on the straight line because of the detour and the glass.
            prop_assert!(delay.as_secs_f64() >= 1.5 * true_s - 1e-9, "fibre {hop:?} is too fast");
            continue;
        }
        prop_assert!((delay.as_secs_f64() - true_s).abs() < 1e-9, "hop {hop:?} is off");
        check_elevation(hop, request, satellites.len(), &at)?;
    }
    Ok(())
}

/// Check that a hop between ground and space is steep enough; one between two places on the ground is an error.
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
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(48)))]

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
            let kinds: Vec<PathEventKind> = new.events.iter().map(|event| event.kind).collect();
            match (old.delay, new.delay) {
                (Some(_), None) => prop_assert_eq!(kinds, [PathEventKind::Lost]),
                (None, Some(_)) => prop_assert_eq!(kinds, [PathEventKind::Restored]),
                (Some(_), Some(_)) => {
                    let last = |frame: &Frame| frame.nodes[frame.nodes.len() - 2];
                    let ends = usize::from(old.nodes[1] != new.nodes[1])
                        + usize::from(last(old) != last(new) && last(new) < satellites);
                    prop_assert_eq!(kinds.iter().filter(|k| **k == PathEventKind::End).count(), ends);
                    if kinds.contains(&PathEventKind::Reroute) {
                        prop_assert_eq!(kinds.len(), 1);
                    }
                    for event in new.events.iter().filter(|e| e.kind == PathEventKind::Intermediate) {
                        let hop = usize::from(event.hop.unwrap());
                        prop_assert!(hop > 0 && hop + 1 < new.hop_delays.len());
                        let ground = new.nodes[hop..=hop + 1].iter().filter(|n| **n >= satellites);
                        prop_assert_eq!(ground.count(), 1);
                    }
                }
                (None, None) => {}
            }
        }
    }

    #[test]
    fn an_end_keeps_its_satellite_for_16_s_or_until_the_path_breaks(
        request in requests_with(Just(Relay::Isl), Just(None)),
    ) {
        let mut since = [Instant::START; 2];
        let mut satellites: [Option<i32>; 2] = [None; 2];
        let minimum_deg = request.constellation.minimum_elevation_deg;
        let mut positions = Vec::new();
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        let request = PathRequest { handover: "leoem".to_owned(), ..request };
        for frame in PathFrames::new(&request).unwrap().filter(|frame| frame.delay.is_some()) {
            ephemeris.earth_fixed(request.start.after(frame.at - Instant::START), &mut positions);
            let is = [frame.nodes[1], frame.nodes[frame.nodes.len() - 2]];
            for (end, place) in [&request.from, &request.to].into_iter().enumerate() {
                if satellites[end] == Some(is[end]) {
                    continue;
                }
                if let Some(was) = satellites[end] {
                    // Only a lost satellite (of either end: periods may coincide) ends a period early.
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
    for request in
        [request(Relay::Isl), request(Relay::BentPipe), request(Relay::Access), geo_request()]
    {
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
    // The place is out of reach of a 53-degree shell.
    let mut request = request(Relay::Isl);
    request.to = Place::new("South Pole", -90.0, 0.0);
    let error = compute(&request, |_, _| ControlFlow::Continue(())).unwrap_err();
    let place = "South Pole".to_owned();
    let constellation = request.constellation.name.clone();
    let satellites = request.constellation.satellites();
    assert_eq!(error, PathError::NeverInView { constellation, satellites, place });
    // The iterator's first frame already has no path.
    let first = PathFrames::new(&request).unwrap().next().unwrap();
    assert_eq!(first.events.len(), 1);
    assert_eq!((first.events[0].kind, first.events[0].hop), (PathEventKind::Lost, None));
}

#[test]
fn a_path_without_a_gateway_in_reach_is_not_blamed_on_the_satellites() {
    let mut request = request(Relay::BentPipe);
    request.gateways = vec![Place::new("McMurdo", -77.8, 166.7)];
    let error = compute(&request, |_, _| ControlFlow::Continue(())).unwrap_err();
    let (from, to) = (request.from.name.clone(), request.to.name.clone());
    assert_eq!(error, PathError::Trace(TraceError::NeverConnected { from, to }));
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
    assert!(message(|r| r.relay = Some(Relay::Geo)).contains("geostationary"));
    let no_pops = message(|r| (r.relay, r.options.pops) = (Some(Relay::Access), Vec::new()));
    assert!(no_pops.contains("points of presence"));
    assert!(message(|r| r.options.fibre_stretch = 0.5).contains("0.5 times"));
    assert!(message(|r| r.options.grid.period = Duration::ZERO).contains("period"));
    assert!(message(|r| r.options.geo_avoidance_deg = Some(95.0)).contains("95 deg"));
    assert!(message(|r| r.handover = "best".to_owned()).contains("\"leoem\""));
    assert!(message(|r| r.from.position.latitude_deg = 91.0).contains("San Diego"));
    assert!(message(|r| r.gateways[3].position.longitude_deg = f64::NAN).contains("gateway 0.3"));
}

#[test]
fn names_are_read_back_and_unknown_ones_list_what_there_is() {
    let constant = OutageModel::Constant(Duration::from_millis(80));
    for outage in [OutageModel::Leoem, OutageModel::Starlink, OutageModel::None, constant] {
        assert_eq!(outage.to_string().parse::<OutageModel>().unwrap(), outage);
    }
    let message = "80".parse::<OutageModel>().unwrap_err().to_string();
    assert!(message.contains("\"leoem\", \"starlink\", \"none\" or a duration"), "{message}");
}

#[test]
fn an_access_path_is_one_satellite_a_gateway_the_users_pop_and_fibre() {
    let request = request(Relay::Access);
    let (satellites, gateways) = (request.constellation.satellites() as i32, 45);
    for frame in computed(&request).frames {
        let [-1, satellite, gateway, pop, -2] = frame.nodes[..] else {
            panic!("{:?}", frame.nodes)
        };
        assert!((0..satellites).contains(&satellite));
        assert!((satellites..satellites + gateways).contains(&gateway));
        // San Diego is nearest to Los Angeles, the first of the list.
        assert_eq!(pop, satellites + gateways);
        // Los Angeles - New York: 3,936 km, times 1.4 at two thirds of the speed of light.
        assert!((frame.hop_delays[3].as_secs_f64() * 1e3 - 27.57).abs() < 0.15);
        assert!(frame.events.iter().all(|event| event.hop.is_none_or(|hop| hop <= 1)));
    }
}

#[test]
fn a_geo_path_is_as_long_as_the_geometry_says() {
    let trace = computed(&geo_request());
    assert_eq!(trace.events().count(), 0);
    for frame in &trace.frames {
        assert_eq!(frame.nodes.len(), 3);
        // From San Diego 37,000 km to 95.2 W or 97.1 W, from New York 38,000 km.
        let rtt_ms = 2e3 * frame.delay.unwrap().as_secs_f64();
        assert!((495.0..510.0).contains(&rtt_ms), "{rtt_ms}");
    }
}

/// Handovers of an end: index of the frame, and the new satellite.
fn handovers(request: &PathRequest) -> Vec<(Instant, u16, i32)> {
    let found = |frame: Frame| {
        let nodes = frame.nodes;
        let ends = frame.events.into_iter().filter(|event| event.kind == PathEventKind::End);
        let row = move |event: skyhop_path::PathEvent| {
            let hop = event.hop.unwrap();
            let satellite = if hop == 0 { nodes[1] } else { nodes[nodes.len() - 2] };
            (event.at, hop.min(1), satellite)
        };
        ends.map(row).collect::<Vec<_>>()
    };
    PathFrames::new(request).unwrap().flat_map(found).collect()
}

#[test]
fn steps_of_a_tenth_and_of_a_second_agree_on_handovers_up_to_the_step() {
    for policy in POLICIES {
        let mut coarse = request(Relay::Isl);
        coarse.handover = policy.name.to_owned();
        coarse.duration = Duration::from_secs(500);
        let fine = PathRequest { step: Duration::from_millis(100), ..coarse.clone() };
        let (coarse, fine) = (handovers(&coarse), handovers(&fine));
        println!(
            "{}: {} handovers in steps of 1 s, {} of 0.1 s",
            policy.name,
            coarse.len(),
            fine.len()
        );
        assert!(!coarse.is_empty(), "{}", policy.name);
        for (at, end, satellite) in &coarse {
            let near = fine.iter().filter(|(fine_at, fine_end, fine_satellite)| {
                (end, satellite) == (fine_end, fine_satellite)
                    && *fine_at <= *at
                    && at.saturating_since(*fine_at) < Duration::from_secs(1)
            });
            assert_eq!(near.count(), 1, "{} at {at} to {satellite}: {fine:?}", policy.name);
        }
        assert_eq!(coarse.len(), fine.len(), "{}", policy.name);
    }
}

#[test]
fn policies_on_a_grid_choose_at_its_moments_only_while_the_path_holds() {
    for name in POLICIES.iter().filter(|policy| policy.follows_grid).map(|policy| policy.name) {
        let mut request = request(Relay::Isl);
        request.handover = name.to_owned();
        request.duration = Duration::from_secs(300);
        let minimum_deg = request.constellation.minimum_elevation_deg;
        let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
        let mut last: Option<Frame> = None;
        for frame in PathFrames::new(&request).unwrap() {
            let time = request.start.after(frame.at - Instant::START);
            let is_moment = time.unix_nanos() / 1_000_000_000 % 15 == 12;
            for event in frame.events.iter().filter(|event| event.kind == PathEventKind::End) {
                let before = &last.as_ref().unwrap().nodes;
                let (was, place) = match event.hop {
                    Some(0) => (before[1], &request.from),
                    _ => (before[before.len() - 2], &request.to),
                };
                let site = EarthModel::Wgs84.site(place.position);
                let has_set =
                    site.elevation_deg(ephemeris.earth_fixed_of(was as u32, time)) < minimum_deg;
                assert!(is_moment || has_set, "{name} at {time}");
            }
            last = Some(frame);
        }
    }
}

#[test]
fn sticky_hands_over_least() {
    let count = |name: &str| {
        let mut request = request(Relay::Isl);
        request.handover = name.to_owned();
        request.duration = Duration::from_secs(1_800);
        request.step = Duration::from_secs(3);
        handovers(&request).len()
    };
    let counts = POLICIES.map(|policy| (count(policy.name), policy.name));
    println!("{counts:?}");
    assert_eq!(counts.iter().min().unwrap().1, "sticky");
}

#[test]
fn a_terminal_alone_uses_the_highest_of_all_satellites() {
    let here = PathRequest { relay: None, ..request(Relay::Isl) };
    let request = PathRequest {
        to: here.from.clone(),
        handover: "max-elevation-grid".to_owned(),
        step: Duration::from_secs(5),
        duration: Duration::from_secs(600),
        ..here
    };
    let ephemeris = Ephemeris::new(&request.constellation, EarthModel::Wgs84);
    let site = EarthModel::Wgs84.site(request.from.position);
    let (mut positions, mut choices, mut changes) = (Vec::new(), 0, 0);
    for frame in computed(&request).frames {
        let utc = request.start.after(frame.at - Instant::START);
        let ends = frame.events.iter().filter(|event| event.kind == PathEventKind::End).count();
        assert_eq!(ends, frame.events.len(), "{frame:?}");
        changes += usize::from(ends > 0);
        if request.options.grid.since(utc) >= request.step {
            continue;
        }
        ephemeris.earth_fixed(utc, &mut positions);
        let height = |id: &usize| site.sin_elevation(positions[*id]);
        let highest = (0..positions.len()).max_by(|a, b| height(a).total_cmp(&height(b))).unwrap();
        assert_eq!(frame.nodes, [-1, highest as i32, -2]);
        choices += 1;
    }
    assert_eq!(choices, 40);
    assert!(changes > 3);
}
