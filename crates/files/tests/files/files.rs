//! Path files: a path survives its file unchanged, and wrong files are refused.

use skyhop_model::{End, PathEventKind};
use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use skyhop_files::{
    Column, FileError, PAIRS_SOURCE, PairsWriter, concatenate, read_path, table_bytes, write_path,
};
use skyhop_path::trace::{NODE_FROM, NODE_TO, SCHEMA_VERSION};
use skyhop_path::{
    BetweenFrames, Endpoint, Frame, NodeSite, Origin, PathEvent, PathHeader, PathTrace,
};
use skyhop_units::{Duration, Instant, Rate};

fn endpoint(name: &str) -> Endpoint {
    Endpoint { name: name.to_owned(), latitude_deg: Some(32.7), longitude_deg: Some(-117.2) }
}

fn header() -> PathHeader {
    PathHeader {
        schema: SCHEMA_VERSION,
        source: "test".to_owned(),
        from: endpoint("San Diego"),
        to: endpoint("New York"),
        constellation: Some("starlink-shell1".to_owned()),
        satellites: 1584,
        relay: Some("isl".to_owned()),
        handover: None,
        outage: None,
        compat: None,
        start: None,
        duration_ns: 2_000_000_000,
        period_ns: None,
        step_ns: 1_000_000_000,
        between_frames: BetweenFrames::Linear,
        seed: 1,
        access: Some("victoria-2024".to_owned()),
        dish: Some(End::To),
        in_order: true,
        directed: true,
        origin: Some(Origin {
            path: serde_json::json!({ "constellation": "fleet.tle", "satellites": "shell=0" }),
            file: Some("fleet.tle".to_owned()),
            sha256: Some("0123".to_owned()),
        }),
        sites: vec![NodeSite {
            node: 1584,
            name: "a gateway".to_owned(),
            latitude_deg: 47.25,
            longitude_deg: -122.5,
            altitude_m: 12.0,
        }],
    }
}

fn frame(second: u64, middle: &[i32], hops_ns: &[u64]) -> Frame {
    let hop_delays: Vec<Duration> = hops_ns.iter().map(|ns| Duration::from_nanos(*ns)).collect();
    let delay = hop_delays.iter().copied().sum();
    let nodes = [&[NODE_FROM], middle, &[NODE_TO]].concat();
    let events = Vec::new();
    let at = Instant::from_nanos(second * 1_000_000_000);
    let delay_back = Some(delay + Duration::from_nanos(5));
    Frame { at, nodes, hop_delays, delay: Some(delay), delay_back, events, ..Frame::default() }
}

fn without_path(second: u64) -> Frame {
    Frame {
        nodes: Vec::new(),
        hop_delays: Vec::new(),
        delay: None,
        delay_back: None,
        ..frame(second, &[], &[1])
    }
}

pub fn trace() -> PathTrace {
    let mut second = frame(1, &[7, 1590, 8], &[3, 4, 5, 6]);
    second.rate = Some(Rate::from_bits_per_second(1_000));
    second.loss = Some(0.25);
    second.rate_back = Some(Rate::from_bits_per_second(2_000));
    second.loss_back = Some(0.5);
    second.events = vec![
        PathEvent {
            at: Instant::from_nanos(1_000_000_000),
            kind: PathEventKind::End,
            hop: Some(0),
            outage: Duration::from_millis(12),
        },
        PathEvent {
            at: Instant::from_nanos(1_000_000_000),
            kind: PathEventKind::Reroute,
            hop: None,
            outage: Duration::ZERO,
        },
    ];
    PathTrace {
        header: header(),
        frames: vec![frame(0, &[7, 9], &[1, 2, 3]), second, without_path(2)],
    }
}

/// A table of one column, with a metadata entry.
fn table(values: &[i64]) -> Vec<u8> {
    let column = Column::required("t_ns", arrow_array::Int64Array::from(values.to_vec()));
    table_bytes(vec![column], Some(("skyhop", "{\"schema\":1}".to_owned()))).unwrap()
}

#[test]
fn parts_become_one_file() {
    become_one_file(3, 3);
}

#[test]
#[ignore = "soak: takes long"]
fn thousands_of_parts_become_one_file() {
    // Parquet allows at most 32767 row groups.
    become_one_file(4_096, 4_096);
    become_one_file(4_097, 2_049);
}

fn become_one_file(count: i64, groups: usize) {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole.parquet");
    let parts: Vec<_> = (0..count)
        .map(|part| {
            let file = directory.path().join(format!("{part}.parquet"));
            fs::write(&file, table(&[2 * part, 2 * part + 1])).unwrap();
            file
        })
        .collect();
    concatenate(&parts, &whole).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&whole).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), groups);
    assert_eq!(reader.schema().metadata()["skyhop"], "{\"schema\":1}");
    let entries = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert_eq!(entries.iter().filter(|entry| entry.key == "skyhop").count(), 1);
    let mut read = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        read.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    assert_eq!(read, (0..2 * count).collect::<Vec<i64>>());
}

#[test]
fn a_path_file_gives_back_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    write_path(&trace(), &file).unwrap();
    assert_eq!(read_path(&file, false).unwrap(), trace());
}

#[test]
fn a_cut_path_file_is_refused_wherever_it_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    write_path(&trace(), &file).unwrap();
    let whole = fs::read(&file).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let message = read_path(&file, false).unwrap_err().to_string();
        assert!(message.contains("not a whole Parquet file"), "{length}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn missing_foreign_and_newer_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    assert!(matches!(read_path(&file, false), Err(FileError::Read { .. })));
    let mut newer = trace();
    newer.header.schema = SCHEMA_VERSION + 1;
    write_path(&newer, &file).unwrap();
    assert!(matches!(read_path(&file, false), Err(FileError::Newer { .. })));
    let foreign = directory.path().join("foreign.parquet");
    let column = Column::required("t_ns", arrow_array::Int64Array::from(vec![1]));
    fs::write(&foreign, table_bytes(vec![column], None).unwrap()).unwrap();
    assert!(matches!(read_path(&foreign, false), Err(FileError::NotAPath { .. })));
    let pairs = directory.path().join("pairs.parquet");
    let header = format!("{{\"schema\": 1, \"source\": \"{PAIRS_SOURCE}\"}}");
    PairsWriter::create(&pairs, header).unwrap().finish().unwrap();
    let message = read_path(&pairs, false).unwrap_err().to_string();
    assert!(message.ends_with("read it with skyhop.read_all_pairs"), "{message}");
}

#[test]
fn an_impossible_path_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.parquet");
    let mut impossible = trace();
    impossible.frames[1].hop_delays[0] = Duration::from_secs(9);
    write_path(&impossible, &file).unwrap();
    let message = read_path(&file, false).unwrap_err().to_string();
    assert!(message.contains("frame 1") && message.contains("do not add up"), "{message}");
}

fn any_frame(second: u64) -> impl Strategy<Value = Frame> {
    let connected =
        prop::collection::vec((0_i32..2000, 0_u64..1 << 40), 0..9).prop_map(move |middle| {
            let nodes: Vec<i32> = middle.iter().map(|(node, _)| *node).collect();
            let hops: Vec<u64> = middle.iter().map(|(_, ns)| *ns).chain([7]).collect();
            frame(second, &nodes, &hops)
        });
    prop_oneof![9 => connected, 1 => Just(without_path(second))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(32)))]

    #[test]
    fn any_path_survives_its_file(
        frames in prop::collection::vec(any::<u8>(), 1..20)
            .prop_flat_map(|v| (0..v.len() as u64).map(any_frame).collect::<Vec<_>>())
    ) {
        prop_assume!(frames.iter().any(|frame| frame.delay.is_some()));
        let trace = PathTrace { header: header(), frames };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.parquet");
        write_path(&trace, &file).unwrap();
        prop_assert_eq!(read_path(&file, false).unwrap(), trace);
    }
}

#[test]
fn only_files_are_replaced_and_links_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(write_path(&trace(), &socket), Err(FileError::NotAFile { .. })));
    let (link, target) = (directory.path().join("link"), directory.path().join("target"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    write_path(&trace(), &link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(read_path(&target, false).unwrap(), trace());
}

#[test]
fn a_file_has_the_permissions_that_any_new_file_has() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, usual) = (directory.path().join("ours"), directory.path().join("usual"));
    write_path(&trace(), &ours).unwrap();
    fs::write(&usual, "").unwrap();
    let permissions = |file| fs::metadata(file).unwrap().permissions();
    assert_eq!(permissions(ours), permissions(usual));
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // The name is longer than file systems allow, which shows only at the rename.
    let path = directory.path().join("x".repeat(300));
    let error = write_path(&trace(), &path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: cannot write: File name too", path.display())));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let nowhere = directory.path().join("missing/x.parquet");
    let error = write_path(&trace(), &nowhere).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{}: cannot write: No such file or directory (os error 2)", nowhere.display())
    );
}

#[test]
fn a_file_of_all_pairs_that_cannot_be_put_in_its_place_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.parquet");
    let writer = PairsWriter::create(&path, "{}".to_owned()).unwrap();
    // A file cannot be renamed onto a directory.
    fs::create_dir(&path).unwrap();
    assert!(matches!(writer.finish(), Err(FileError::Write { .. })));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [path]);
}
