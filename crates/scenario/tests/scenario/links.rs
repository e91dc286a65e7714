//! Links built from a scenario's path and changes.

use skyhop_model::{DuringOutage, HandoverKind, PathEventKind};
use std::ops::ControlFlow;
use std::path::Path;

use skyhop_experiment::{Experiment, PlannedChange};
use skyhop_files::write_path;
use skyhop_link::{DamaConfig, DelayPiece, Dismantled, Limit, Loss, Outage, Piece};
use skyhop_path::{BetweenFrames, Endpoint, Frame, PathEvent, PathHeader, PathTrace};
use skyhop_scenario::{ScenarioError, parse_scenario};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at_ms(at: u64) -> Instant {
    Instant::START + ms(at)
}

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_second(rate * 1_000_000)
}

fn loss(fraction: f64) -> Loss {
    Loss::Independent(Ratio::new(fraction).unwrap())
}

fn experiment(text: &str) -> Experiment {
    checked(text).unwrap()
}

fn checked(text: &str) -> Result<Experiment, ScenarioError> {
    let no_places = |name: &str| Err(format!("no place {name}"));
    parse_scenario(text, "x.toml", &[])?
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
}

fn frame(at: u64, nodes: &[i32], hops_ms: &[u64], events: Vec<PathEvent>) -> Frame {
    let hop_delays: Vec<Duration> = hops_ms.iter().map(|hop| ms(*hop)).collect();
    let delay = (!hops_ms.is_empty()).then(|| hop_delays.iter().copied().sum());
    let at = at_ms(at);
    let nodes = nodes.to_vec();
    Frame { at, nodes, hop_delays, delay, delay_back: delay, events, ..Frame::default() }
}

fn event(at: u64, kind: PathEventKind, hop: Option<u16>, outage: u64) -> PathEvent {
    PathEvent { at: at_ms(at), kind, hop, outage: ms(outage) }
}

/// Build the experiment of a scenario whose path has these frames; `extra` follows the `[path]`.
fn over(frames: Vec<Frame>, between_frames: BetweenFrames, extra: &str) -> Experiment {
    let ends = ["from", "to"].map(Endpoint::named);
    let plain = PathHeader::plain("test", ends, ms(60_000), ms(1_000));
    let header = PathHeader { satellites: 100, between_frames, ..plain };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    write_path(&PathTrace { header, frames }, &file).unwrap();
    experiment(&format!("[path]\nkind = \"trace\"\nfile = \"{}\"\n{extra}", show(&file)))
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn flat(from: u64, delay: u64, new_route: bool) -> DelayPiece {
    DelayPiece { from: at_ms(from), delay: ms(delay), delay_at_end: ms(delay), new_route }
}

#[test]
fn a_fixed_path_is_half_the_round_trip_each_way() {
    let built = experiment("[path]\nkind = \"fixed\"\nrtt = \"41 ms\"\n[link]\nloss = \"1 %\"");
    let half = Duration::from_micros(20_500);
    assert_eq!(built.links[0].forward.schedule.delay_at(Instant::START), half);
    assert_eq!(built.links[0].back.schedule.delay_at(Instant::START), half);
    // The product is 150 Mbit/s times 41 ms.
    assert_eq!(built.links[0].forward.queue, Limit::Bytes(Bytes::new(768_750)));
    assert_eq!(built.links[0].forward.schedule.loss[0].value, loss(0.01));
    assert_eq!(built.links[0].back.schedule.loss[0].value, Loss::NONE, "loss is one way");
    assert_ne!(built.links[0].forward.seed, built.links[0].back.seed);
}

#[test]
fn the_other_direction_may_have_its_own() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"50 Mbit/s\"\n\
                [link.back]\nrate = \"5 Mbit/s\"\nqueue = \"10 packets\"\nloss = \"2 %\"\n\
                [[change]]\nat = \"10 s\"\nrate = \"20 Mbit/s\"\nloss = \"3 %\"";
    let built = experiment(text);
    let forward = &built.links[0].forward.schedule;
    assert_eq!(forward.rate[1], Piece { from: at_ms(10_000), value: mbit(20) });
    assert_eq!(forward.loss[1].value, loss(0.03));
    assert_eq!(built.links[0].back.queue, Limit::Packets(10));
    assert_eq!(built.links[0].back.schedule.rate, [Piece { from: Instant::START, value: mbit(5) }]);
    assert_eq!(built.links[0].back.schedule.loss.len(), 1);
}

#[test]
fn any_direction_of_any_link_may_lose_in_bursts_and_a_change_begins_or_ends_them() {
    let [bad, worse] = ["1 s", "2 s"].map(|bad| {
        format!(r#"{{ kind = "gilbert-elliott", good = "9 s", bad = "{bad}", bad_loss = "50 %" }}"#)
    });
    let text = format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nloss = {bad}\nback.loss = {worse}\n\
         [links.more]\nloss = \"1 %\"\n\
         [[change]]\nat = \"10 s\"\nloss = \"0 %\"\n\
         [[change]]\nat = \"20 s\"\nloss = {worse}\nlink = \"more\"\n"
    );
    let built = experiment(&text);
    let [path, more] = built.links.as_slice() else { panic!("two links") };
    let means = |pieces: &[Piece<Loss>]| -> Vec<(u64, f64)> {
        pieces.iter().map(|piece| (piece.from.as_nanos(), piece.value.mean())).collect()
    };
    let second = 1_000_000_000;
    assert_eq!(means(&path.forward.schedule.loss), [(0, 0.05), (10 * second, 0.0)]);
    assert_eq!(means(&path.back.schedule.loss), [(0, 1.0 / 11.0)]);
    assert_eq!(means(&more.forward.schedule.loss), [(0, 0.01), (20 * second, 1.0 / 11.0)]);
    assert_eq!(more.back.schedule.loss[0].value, Loss::NONE, "loss is one way");
    // What is written is read again, with the values that were not given.
    let link = &built.scenario["link"];
    assert_eq!(link["loss"]["bad"], "1 s");
    assert_eq!((&link["loss"]["good_loss"], &link["loss"]["p"]), (&"0 %".into(), &().into()));
    assert_eq!(built.scenario["links"]["more"]["loss"], "1 %");
}

#[test]
fn capacity_on_demand_belongs_to_the_direction_that_has_the_key() {
    let fixed = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n";
    let of = |keys: &str| {
        let link = experiment(&format!("{fixed}{keys}")).links.remove(0);
        (link.forward.schedule.dama, link.back.schedule.dama)
    };
    let default = DamaConfig::default();
    let slow = DamaConfig { frame: ms(100), ..default };
    assert_eq!(of(""), (None, None));
    assert_eq!(of("[link.back.dama]"), (None, Some(default)));
    assert_eq!(of("[link.dama]\nframe = \"100 ms\""), (Some(slow), None));
    assert_eq!(
        of("[link]\ndama = {}\nback = { dama = { frame = \"100 ms\" } }"),
        (Some(default), Some(slow),)
    );
    let refused = |keys: &str| checked(&format!("{fixed}{keys}")).unwrap_err().to_string();
    assert_eq!(
        refused("[link.back]\ndama = { drain = \"0 s\" }"),
        "x.toml: link.back: dama: drain is 0 s; expected the time in which a request clears the backlog"
    );
    for keys in ["dama = {}", "back = { dama = {} }"] {
        let error = refused(&format!("[link]\nqueues = \"per-hop\"\n{keys}"));
        assert!(error.contains("link.queues: \"per-hop\" does not go with link.dama"), "{error}");
    }
}

#[test]
fn the_resolved_scenario_has_capacity_on_demand_only_where_it_is_given() {
    let fixed = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n";
    let json = |keys: &str| {
        parse_scenario(&format!("{fixed}{keys}"), "x.toml", &[]).unwrap().scenario.to_json()
    };
    assert!(!json("[link.back]\nrate = \"5 Mbit/s\"").to_string().contains("dama"));
    let given = &json("[link.back]\ndama = { window = \"1 s\" }")["link"];
    assert_eq!(given["back"]["dama"]["window"], "1 s");
    assert_eq!(given["back"]["dama"]["frame"], "40 ms");
    assert!(given.get("dama").is_none(), "{given}");
}

#[test]
fn a_change_counts_from_the_end_of_its_outage() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\nduring_outage = \"hold\"\n\
                [[change]]\nat = \"15 s\"\nrtt = \"60 ms\"\nrate = \"20 Mbit/s\"\noutage = \"100 ms\"";
    let built = experiment(text);
    let schedule = &built.links[0].forward.schedule;
    assert_eq!(schedule.outages, [Outage { from: at_ms(15_000), until: at_ms(15_100) }]);
    assert_eq!(schedule.delay, [flat(0, 20, false), flat(15_100, 30, false)]);
    assert_eq!(schedule.rate[1], Piece { from: at_ms(15_100), value: mbit(20) });
    assert_eq!(schedule.during_outage, DuringOutage::Hold);
    assert!(schedule.dismantled.is_empty());
    let change = PlannedChange { at: at_ms(15_000), link: 0, outage: ms(100), flow: None };
    assert_eq!(built.changes, [change]);
    // The mean over the run, for the BDP: 15.1 s at 40 ms and 44.9 s at 60 ms.
    let rtt = built.path().mean_base_rtt(Instant::START, at_ms(60_000));
    assert_eq!(rtt.as_micros(), (15_100 * 40_000 + 44_900 * 60_000) / 60_000);
}

#[test]
fn delays_are_interpolated_only_along_the_same_route() {
    let frames = vec![
        frame(0, &[-1, 5, -2], &[3, 7], vec![]),
        frame(1000, &[-1, 5, -2], &[5, 7], vec![]),
        frame(2000, &[-1, 6, -2], &[1, 7], vec![]),
    ];
    let linear = over(frames.clone(), BetweenFrames::Linear, "").links.remove(0).forward.schedule;
    let sloped =
        DelayPiece { from: at_ms(0), delay: ms(10), delay_at_end: ms(12), new_route: false };
    assert_eq!(linear.delay, [sloped, flat(1000, 12, false), flat(2000, 8, true)]);
    let step = over(frames, BetweenFrames::Step, "").links.remove(0).forward.schedule;
    assert_eq!(step.delay, [flat(0, 10, false), flat(1000, 12, false), flat(2000, 8, true)]);
}

#[test]
fn the_hops_that_an_event_takes_away_are_those_of_the_old_route() {
    let frames = vec![
        frame(0, &[-1, 5, 101, 6, -2], &[1, 2, 3, 4], vec![]),
        // 101 - 6 becomes 101 - 7 - 102 - 6: left at 101, joined again at 6, the same old hop.
        frame(
            1000,
            &[-1, 5, 101, 7, 102, 6, -2],
            &[1, 2, 3, 3, 3, 4],
            vec![
                event(1000, PathEventKind::Intermediate, Some(2), 0),
                event(1000, PathEventKind::Intermediate, Some(4), 0),
            ],
        ),
        // The far user's satellite changes from 6 to 8.
        frame(
            2000,
            &[-1, 5, 101, 7, 102, 8, -2],
            &[1, 2, 3, 3, 5, 6],
            vec![event(2000, PathEventKind::End, Some(5), 24)],
        ),
    ];
    let built = over(frames, BetweenFrames::Step, "");
    let lost = |at, near, far| Dismantled { at: at_ms(at), near, far, queue: false };
    assert_eq!(
        built.links[0].forward.schedule.dismantled,
        [lost(1000, ms(3), ms(6)), lost(2000, ms(12), Duration::MAX)]
    );
    assert_eq!(
        built.links[0].back.schedule.dismantled,
        [lost(1000, ms(4), ms(7)), lost(2000, ms(0), ms(4))]
    );
    assert_eq!(
        built.links[0].forward.schedule.outages,
        [Outage { from: at_ms(2000), until: at_ms(2024) }]
    );
}

#[test]
fn time_without_a_path_is_an_outage_until_it_is_restored() {
    let frames = vec![
        frame(0, &[-1, 5, -2], &[3, 7], vec![]),
        frame(1000, &[], &[], vec![event(1000, PathEventKind::Lost, None, 0)]),
        frame(2000, &[], &[], vec![]),
        frame(3000, &[-1, 6, -2], &[2, 7], vec![event(3000, PathEventKind::Restored, None, 21)]),
    ];
    let schedule = over(frames, BetweenFrames::Linear, "").links.remove(0).forward.schedule;
    assert_eq!(schedule.outages, [Outage { from: at_ms(1000), until: at_ms(3021) }]);
    assert_eq!(schedule.delay, [flat(0, 10, false), flat(3000, 9, true)]);
    let user_link = Dismantled { at: at_ms(1000), near: ms(0), far: ms(3), queue: false };
    assert_eq!(schedule.dismantled, [user_link]);
}

/// A path of three hops that loses its second, then is of two hops, then breaks.
fn hopping() -> Vec<Frame> {
    vec![
        frame(0, &[-1, 5, 101, -2], &[3, 4, 5], vec![]),
        frame(
            1000,
            &[-1, 5, 102, -2],
            &[3, 6, 7],
            vec![event(1000, PathEventKind::Intermediate, Some(1), 25)],
        ),
        frame(2000, &[-1, 6, -2], &[2, 8], vec![event(2000, PathEventKind::End, Some(0), 30)]),
        frame(3000, &[], &[], vec![event(3000, PathEventKind::Lost, None, 0)]),
    ]
}

#[test]
fn announcements_have_the_lead_and_error_of_their_kind_and_arrive_later_by_the_latency() {
    let keys = "[signal]\nsource = \"path\"\nlead = \"500 ms\"\nerror = \"300 ms\"\nlatency = \"20 ms\"\n\
                end = { lead = \"0 s\", error = \"none\" }\nintermediate.lead = \"400 ms\"\n[[flow]]\n";
    let built = over(hopping(), BetweenFrames::Step, keys);
    let found: Vec<_> = built.announcements.iter().map(|a| (a.kind, a.announced, a.at)).collect();
    let expected = [
        (HandoverKind::Intermediate, at_ms(920), at_ms(1_300)),
        (HandoverKind::End, at_ms(2_020), at_ms(2_000)),
        (HandoverKind::Unknown, at_ms(2_820), at_ms(3_300)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_queue_at_each_hop_takes_the_path_apart() {
    let keys = "[link]\nqueues = \"per-hop\"\nrate = \"100 Mbit/s\"\nend_rate = \"150 Mbit/s\"\n\
                loss = \"1 %\"\n[links.host]\n[[flow]]\nvia = [\"host\", \"path\"]\n";
    let built = over(hopping(), BetweenFrames::Step, keys);
    let names: Vec<&str> = built.links.iter().map(|link| &link.name[..]).collect();
    assert_eq!(names, ["path", "host", "path.2", "path.3"]);
    assert_eq!(built.flows[0].routes[0].links, [1, 0, 2, 3]);
    let [first, second, third] =
        [0, 2, 3].map(|link: usize| built.links[link].forward.schedule.clone());
    assert_eq!(first.delay, [flat(0, 3, false), flat(2000, 2, true)]);
    assert_eq!(second.delay, [flat(0, 4, false), flat(1000, 6, true), flat(2000, 8, true)]);
    assert_eq!(third.delay, [flat(0, 5, false), flat(1000, 7, true), flat(2000, 0, true)]);
    let rates = |schedule: &skyhop_link::LinkSchedule| -> Vec<(Instant, u64)> {
        let pieces = schedule.rate.iter();
        pieces.map(|piece| (piece.from, piece.value.bits_per_second() / 1_000_000)).collect()
    };
    assert_eq!(rates(&first), [(at_ms(0), 150)]);
    assert_eq!(rates(&second), [(at_ms(0), 100), (at_ms(2000), 150)]);
    assert_eq!(rates(&third), [(at_ms(0), 150), (at_ms(2000), 1_000_000)]);
    let gone = |at| Dismantled { at: at_ms(at), near: ms(0), far: Duration::MAX, queue: true };
    assert_eq!(first.dismantled, [gone(2000), gone(3000)]);
    assert_eq!((second.dismantled, third.dismantled), (vec![gone(1000)], vec![]));
    let broken = Outage { from: at_ms(3000), until: Instant::NEVER };
    assert_eq!(first.outages, [Outage { from: at_ms(2000), until: at_ms(2030) }, broken]);
    // The interfaces of the broken hop are down for a while, those of its neighbours are not.
    assert_eq!(second.outages, [Outage { from: at_ms(1000), until: at_ms(1025) }]);
    assert_eq!(third.outages, []);
    let losses = [first.loss, second.loss, third.loss].map(|loss| loss[0].value.mean());
    assert_eq!(losses, [0.01, 0.0, 0.0]);
    // The path as a whole keeps its own delay.
    assert_eq!(built.path().frames.len(), 4);
    let base_rtt = built.mean_base_rtt(&built.flows[0], Instant::START, at_ms(1000));
    assert_eq!(base_rtt, ms(24));
}

#[test]
fn flows_begin_within_their_spread() {
    let text = |seed| {
        format!(
            "[path]\nkind = \"fixed\"\nrtt = \"1 ms\"\n[run]\nseed = {seed}\n[[flow]]\n\
             start = \"2 s\"\nstart_spread = \"100 ms\"\ncount = 20\n[[flow]]\nstart = \"1 s\"\n"
        )
    };
    let starts = |seed| -> Vec<Instant> {
        experiment(&text(seed)).flows.iter().map(|flow| flow.start).collect()
    };
    let (some, others) = (starts(1), starts(2));
    assert_eq!(some, starts(1));
    assert_eq!((some[20], others[20]), (at_ms(1000), at_ms(1000)));
    for drawn in some[..20].iter().chain(&others[..20]) {
        assert!((at_ms(2000)..at_ms(2100)).contains(drawn), "{drawn}");
    }
    let early = some[..20].iter().filter(|start| **start < at_ms(2050)).count();
    assert!((3..=17).contains(&early), "{early}");
    assert!(some[..20].iter().zip(&others).all(|(one, other)| one != other));
}

#[test]
fn a_measured_rate_counts_unless_the_scenario_gives_one() {
    let mut frames = vec![
        frame(0, &[], &[], vec![event(0, PathEventKind::Lost, None, 0)]),
        frame(1000, &[-1, -2], &[9], vec![]),
    ];
    frames[1].rate = Some(mbit(33));
    frames[1].loss = Some(0.5);
    let measured = over(frames.clone(), BetweenFrames::Step, "").links.remove(0).forward.schedule;
    assert_eq!(measured.rate[1], Piece { from: at_ms(1000), value: mbit(33) });
    assert_eq!(measured.loss[1].value, loss(0.5));
    let given = over(frames, BetweenFrames::Step, "[link]\nrate = \"9 Mbit/s\"")
        .links
        .remove(0)
        .forward
        .schedule;
    assert_eq!(given.rate, [Piece { from: Instant::START, value: mbit(9) }]);
}

#[test]
fn flows_are_counted_from_zero_and_end_with_the_run() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[run]\nduration = \"20 s\"\n\
                [[flow]]\ncount = 2\n[[flow]]\nkind = \"probe\"\nstop = \"50 s\"";
    let flows = experiment(text).flows;
    assert_eq!(flows.iter().map(|flow| flow.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(flows.iter().all(|flow| flow.stop == at_ms(20_000)));
}

#[test]
fn a_change_is_a_step_on_a_path_that_moves() {
    let frames = vec![
        frame(0, &[-1, 5, -2], &[10, 10], vec![]),
        frame(2000, &[-1, 5, -2], &[12, 10], vec![]),
    ];
    let extra = "[[change]]\nat = \"3 s\"\nrtt = \"300 ms\"";
    let schedule = over(frames, BetweenFrames::Linear, extra).links.remove(0).forward.schedule;
    assert_eq!(schedule.delay_at(at_ms(1000)), ms(21));
    assert_eq!(schedule.delay_at(at_ms(2900)), ms(22));
    assert_eq!(schedule.delay_at(at_ms(3000)), ms(150));
}

#[test]
fn a_queue_holds_at_least_a_packet() {
    let slow = "[path]\nkind = \"fixed\"\nrtt = \"10 ms\"\n[link]\nrate = \"1 Mbit/s\"\n";
    assert_eq!(experiment(slow).links[0].forward.queue, Limit::Bytes(Bytes::new(1514)));
    let no_places = |name: &str| Err(format!("no place {name}"));
    let tiny = parse_scenario(&format!("{slow}queue = \"1 kB\"\n"), "x.toml", &[]).unwrap();
    let refused = tiny.experiment(&no_places, &mut |_, _| ControlFlow::Continue(()));
    let message = refused.unwrap_err().to_string();
    assert!(message.starts_with("x.toml: link.queue: \"1 kB\" holds no packet"), "{message}");
}

#[test]
fn a_measured_loss_is_that_of_the_way_there() {
    let mut frames = vec![frame(0, &[-1, -2], &[9], vec![])];
    frames[0].loss = Some(0.5);
    let built = over(frames, BetweenFrames::Step, "");
    assert_eq!(built.links[0].forward.schedule.loss[0].value, loss(0.5));
    assert_eq!(built.links[0].back.schedule.loss[0].value, Loss::NONE);
}

#[test]
fn an_experiment_is_the_same_after_it_was_sent_as_text() {
    let text = "[path]\nconstellation = \"starlink-shell1\"\nfrom = \"San Diego\"\nto = \"New York\"\n\
                [link]\nloss = \"0.3 %\"\n[links.more]\nrtt = \"7 ms\"\n[run]\nduration = \"90 s\"\n\
                [[change]]\nat = \"3 s\"\nloss = \"0.123456789 %\"\noutage = \"1.5 ms\"\n\
                [signal]\nsource = \"path\"\nerror = \"report-timing\"\n\
                [[flow]]\ncc = \"cubic\"\ncubic.beta = 0.7\nvia = [\"path\", \"more\"]\n\
                [[flow]]\nkind = \"probe\"\n";
    let place = |name: &str| {
        let known = [("San Diego", 32.7, -117.2), ("New York", 40.7, -74.0)];
        let (name, latitude, longitude) = known.into_iter().find(|one| one.0 == name).unwrap();
        Ok(skyhop_path::Place::new(name, latitude, longitude))
    };
    let experiment = parse_scenario(text, "x.toml", &[])
        .unwrap()
        .experiment(&place, &mut |_, _| std::ops::ControlFlow::Continue(()))
        .unwrap();
    let sent = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&sent).unwrap(), experiment);
}

/// Path of 60 s, repeated or not: base RTT 20 ms in the first half and 60 ms in the second, 40 ms in the mean.
fn of_two_levels(extra: &str) -> Experiment {
    let frames = vec![frame(0, &[], &[10], vec![]), frame(30_000, &[], &[30], vec![])];
    let frames = frames.into_iter().map(|frame| Frame { hop_delays: Vec::new(), ..frame });
    over(frames.collect(), BetweenFrames::Step, extra)
}

#[test]
fn a_bdp_is_of_the_whole_path_whatever_the_duration_of_the_run() {
    let whole = Limit::Bytes(Bytes::new(750_000));
    for duration in ["1 s", "10 s", "60 s", "90 s", "5 min"] {
        for repeats in ["", "loop = true\n"] {
            let built = of_two_levels(&format!("{repeats}[run]\nduration = \"{duration}\""));
            assert_eq!(built.links[0].forward.queue, whole, "{duration} {repeats}");
            let [size, back] = &built.links[0].queues;
            assert_eq!(size, back);
            assert_eq!((size.given.as_str(), size.bytes, size.packets), ("1 BDP", 750_000, 495));
            assert_eq!((size.rate_bps, size.base_rtt_us), (Some(150_000_000), Some(40_000)));
        }
    }
}

#[test]
fn the_size_of_a_queue_is_in_bytes_and_in_packets() {
    let size = |queue: &str| {
        let path = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n";
        let built = experiment(&format!(
            "{path}[link]\nqueue = \"{queue}\"\nback = {{ rate = \"15 Mbit/s\" }}"
        ));
        let [there, back] = built.links[0].queues.clone();
        [
            (there.bytes, there.packets, there.base_rtt_us),
            (back.bytes, back.packets, back.base_rtt_us),
        ]
    };
    assert_eq!(size("2 BDP"), [(1_500_000, 990, Some(40_000)), (150_000, 99, Some(40_000))]);
    assert_eq!(size("100 ms"), [(1_875_000, 1_238, None), (187_500, 123, None)]);
    assert_eq!(size("10 packets"), [(15_140, 10, None); 2]);
    assert_eq!(size("1.5 MB"), [(1_500_000, 990, None); 2]);
}

#[test]
fn a_bdp_of_a_further_link_is_of_the_longest_route_that_crosses_it() {
    let built = experiment(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[links.second]\nrtt = \"10 ms\"\nrate = \"80 Mbit/s\"\n\
         [[flow]]\ncc = \"cubic\"\nvia = [\"path\", \"second\"]\nextra_rtt = \"20 ms\"\n\
         [[flow]]\ncc = \"cubic\"\nvia = [\"second\"]",
    );
    // 80 Mbit/s times 70 ms.
    assert_eq!(built.links[1].forward.queue, Limit::Bytes(Bytes::new(700_000)));
    assert_eq!(built.links[1].queues[0].base_rtt_us, Some(70_000));
}
