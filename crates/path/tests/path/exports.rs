//! Files exported for other tools.

use proptest::prelude::*;
use skyhop_model::PathEventKind;
use skyhop_path::export::{MahimahiError, write_csv, write_mahimahi, write_netem};
use skyhop_path::import::{MeasuredOptions, parse_csv};
use skyhop_path::{BetweenFrames, Endpoint, Frame, PathEvent, PathTrace};
use skyhop_units::{Duration, Instant, Rate, UtcInstant};

/// Measurement with the columns ul and dl rate (Mbit/s), ul and dl delay (ms), ul and dl loss, time (ms).
fn path(rows: &str) -> PathTrace {
    parse_csv(rows.as_bytes(), &MeasuredOptions::default()).unwrap().trace
}

fn mahimahi(trace: &PathTrace, assumed: Option<Rate>) -> Result<Vec<u64>, MahimahiError> {
    let mut bytes = Vec::new();
    write_mahimahi(trace, assumed, &mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap().lines().map(|line| line.parse().unwrap()).collect())
}

fn netem(trace: &PathTrace, step_ms: u64) -> Vec<String> {
    let mut bytes = Vec::new();
    write_netem(trace, Duration::from_millis(step_ms), &mut bytes).unwrap();
    let script = String::from_utf8(bytes).unwrap();
    let table = script.split_once("<<'PATH_TABLE'\n").unwrap().1;
    table.lines().filter(|line| *line != "PATH_TABLE").map(str::to_owned).collect()
}

#[test]
fn packets_pass_at_the_rate_of_the_moment() {
    // 12.112 Mbit/s is 1514 bytes per ms.
    let trace = path("1,12.112,10,10,0,0,0\n1,24.224,10,10,0,0,3\n1,0,10,10,0,0,6\n");
    assert_eq!(mahimahi(&trace, None).unwrap(), [1, 2, 3, 4, 4, 5, 5, 6, 6]);
}

#[test]
fn nothing_passes_while_the_path_is_down() {
    let mut trace = path("1,12.112,10,10,0,0,0\n1,12.112,10,10,0,0,4\n");
    let outage = Duration::from_millis(3);
    let at = Instant::START + Duration::from_millis(1);
    let kind = PathEventKind::End;
    trace.frames[0].events.push(PathEvent { at, kind, hop: None, outage });
    assert_eq!(mahimahi(&trace, None).unwrap(), [1, 5, 6, 7, 8]);
    assert_eq!(
        netem(&trace, 1),
        [
            "0 10000 0 12112000 10000 0",
            "1 10000 100 12112000 10000 100",
            "4 10000 0 12112000 10000 0",
            "8 10000 0 12112000 10000 0",
        ]
    );
}

#[test]
fn a_path_without_a_rate_needs_one() {
    let mut trace = path("1,12.112,10,10,0,0,0\n1,12.112,10,10,0,0,2\n");
    trace.frames.iter_mut().for_each(|frame| frame.rate = None);
    assert!(matches!(mahimahi(&trace, None), Err(MahimahiError::NoRate)));
    let assumed = Some(Rate::from_bits_per_second(6_056_000));
    assert_eq!(mahimahi(&trace, assumed).unwrap(), [2, 4]);
    assert!(matches!(mahimahi(&trace, Some(Rate::ZERO)), Err(MahimahiError::Nothing)));
}

#[test]
fn a_sloping_delay_is_taken_at_each_step() {
    let mut trace = path("1,8,10,10,0,0.125,0\n1,8,30,30,0,0.125,200\n");
    trace.header.between_frames = BetweenFrames::Linear;
    let table = netem(&trace, 100);
    assert_eq!(table[..2], ["0 10000 12.5 8000000 10000 0", "100 20000 12.5 8000000 20000 0"]);
    assert_eq!(table.last().unwrap(), "400 30000 12.5 8000000 30000 0");
}

fn frame() -> impl Strategy<Value = Frame> {
    let times = any::<u32>().prop_map(|ns| Duration::from_nanos(ns.into()));
    let hops = prop::collection::vec((0_i32..2000, times.clone()), 0..5);
    let kind = prop::sample::select(PathEventKind::ALL);
    let event = (any::<u32>(), kind, prop::option::of(0_u16..9), times.clone());
    let event = event.prop_map(|(at, kind, hop, outage)| PathEvent {
        at: Instant::from_nanos(at.into()),
        kind,
        hop,
        outage,
    });
    let one_way = || (prop::option::of(any::<u32>()), prop::option::of(0.0..=1.0));
    let measured = (one_way(), one_way());
    (hops, times, measured, prop::collection::vec(event, 0..3), any::<bool>()).prop_map(
        |(hops, last, ((rate, loss), (rate_back, loss_back)), events, up)| {
            let nodes = hops.iter().map(|(node, _)| *node);
            let nodes: Vec<i32> = [-1].into_iter().chain(nodes).chain([-2]).collect();
            let hop_delays: Vec<Duration> =
                hops.iter().map(|(_, delay)| *delay).chain([last]).collect();
            let delay = Some(hop_delays.iter().copied().sum());
            Frame {
                at: Instant::START,
                nodes: if up { nodes } else { Vec::new() },
                hop_delays: if up { hop_delays } else { Vec::new() },
                delay: delay.filter(|_| up),
                delay_back: Some(last).filter(|_| up),
                rate: rate.map(|bps| Rate::from_bits_per_second(bps.into())),
                rate_back: rate_back.map(|bps| Rate::from_bits_per_second(bps.into())),
                loss,
                loss_back,
                events,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_csv_reads_back_as_the_very_same_path(
        frames in prop::collection::vec((frame(), 1_u64..1 << 40), 1..12),
        place in (prop::option::of(-90.0..90.0), ".{0,20}"),
        start_ns in prop::option::of(any::<i64>()),
    ) {
        let mut trace = path("1,8,10,10,0,0,0\n");
        trace.header.from = Endpoint {
            name: place.1,
            latitude_deg: place.0,
            longitude_deg: place.0.map(|deg| deg / 3.0),
        };
        trace.header.start = start_ns.map(UtcInstant::from_unix_nanos);
        let mut at = Instant::START;
        let timed = frames.into_iter().map(|(frame, held_ns)| {
            let frame = Frame { at, ..frame };
            at += Duration::from_nanos(held_ns);
            frame
        });
        // At least one frame has a path; all others may have none.
        trace.frames = timed.collect();
        trace.frames[0].delay = trace.frames[0].delay.or(Some(Duration::ZERO));
        trace.frames[0].delay_back = trace.frames[0].delay_back.or(Some(Duration::ZERO));
        prop_assert_eq!(trace.validate(), Ok(()));
        let mut bytes = Vec::new();
        write_csv(&trace, &mut bytes).unwrap();
        prop_assert_eq!(parse_csv(&bytes[..], &MeasuredOptions::default()).unwrap().trace, trace);
    }
}
