//! Run directories: complete or absent, however long the run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use skyhop_files::Staging;
use skyhop_model::AppTable;
use skyhop_path::{Endpoint, PathTrace};
use skyhop_record::{
    AppRow, FileError, FlowSample, Piece, ProbeRow, RouteRow, RunDirectory, RunHeader, RunWriter,
    SCHEMA_VERSION, Sink, Summary, SummaryOnly,
};
use skyhop_units::Duration;

fn trace() -> PathTrace {
    let ends = ["San Diego", "New York"].map(Endpoint::named);
    PathTrace::fixed(ends, Duration::from_millis(20), Duration::from_secs(2))
}

/// Files of a run over a network, which has all that a run over a path has.
const RUN_FILES: [&str; 8] = [
    "events.parquet",
    "flows.parquet",
    "link.parquet",
    "path.parquet",
    "probes.parquet",
    "routes.parquet",
    "run.json",
    "summary.json",
];

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn flow(t_ns: i64) -> FlowSample {
    FlowSample { t_ns, goodput_bps: 9, ..FlowSample::default() }
}

fn probe(probe: i32, seq: i64) -> ProbeRow {
    ProbeRow { probe, seq, t_ns: seq, ..ProbeRow::default() }
}

fn route(satellites: &[u32], t_ns: i64) -> RouteRow {
    let delay_ns = (!satellites.is_empty()).then_some(30);
    RouteRow { t_ns, from: 1, to: 0, way: 2, satellites: satellites.to_vec(), delay_ns }
}

fn begin(writer: &mut RunWriter) {
    let begin = RunHeader {
        schema: SCHEMA_VERSION,
        engine: "test".to_owned(),
        links: vec!["path".to_owned()],
        sites: ["London", "Tokyo"].map(str::to_owned).into(),
    };
    writer.write(Piece::Begin(begin)).unwrap();
}

fn end(writer: &mut RunWriter, run: &str) -> Result<(), FileError> {
    let run =
        serde_json::json!({ "schema": SCHEMA_VERSION, "engine": "test", "seed": 1, "is": run });
    writer.write(Piece::Run(run))?;
    writer.write(Piece::Summary(Box::default()))
}

/// Copy the mark of a staging directory into `left`, which then looks like that of a killed process.
fn mark(left: &Path) {
    let staging = Staging::with_prefix(left, "mark-").unwrap();
    fs::copy(staging.path().join(".lock"), left.join(".lock")).unwrap();
}

fn write(directory: &RunDirectory, run: &str) -> Result<(), FileError> {
    let mut writer = directory.writer(&trace(), None)?;
    begin(&mut writer);
    writer.write(Piece::Flows(vec![flow(5)]))?;
    writer.write(Piece::Probes(vec![probe(0, 3)]))?;
    writer.write(Piece::Routes(vec![route(&[4, 11], 7), route(&[], 8)]))?;
    end(&mut writer, run)
}

fn column(file: &Path, name: &str) -> Vec<i64> {
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap().build();
    let mut values = Vec::new();
    for batch in reader.unwrap() {
        let batch = batch.unwrap();
        let array = batch.column_by_name(name).unwrap();
        let array: &arrow_array::Int64Array = array.as_any().downcast_ref().unwrap();
        values.extend(array.values().iter());
    }
    values
}

#[test]
fn routes_have_the_names_of_their_sites() {
    let directory = tempfile::tempdir().unwrap();
    write(&RunDirectory::reserve(directory.path(), false).unwrap(), "run").unwrap();
    let file = directory.path().join("routes.parquet");
    assert_eq!(column(&file, "t_ns"), [7, 8]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let texts = |name: &str| {
        let array = batch.column_by_name(name).unwrap();
        let array: &arrow_array::StringArray = array.as_any().downcast_ref().unwrap();
        array.iter().map(|text| text.unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(texts("from"), ["Tokyo", "Tokyo"]);
    assert_eq!(texts("to"), ["London", "London"]);
    assert_eq!(texts("satellites"), ["4-11", ""]);
    assert_eq!(batch.column_by_name("delay_ns").unwrap().null_count(), 1);
}

#[test]
fn a_run_over_a_path_has_no_table_of_routes() {
    let directory = tempfile::tempdir().unwrap();
    let reserved = RunDirectory::reserve(directory.path(), false).unwrap();
    let mut writer = reserved.writer(&trace(), None).unwrap();
    writer.write(Piece::Begin(RunHeader::default())).unwrap();
    end(&mut writer, "run").unwrap();
    drop(writer);
    let files = RUN_FILES.into_iter().filter(|name| *name != "routes.parquet");
    assert!(names(directory.path()).into_iter().eq(files));
}

#[test]
fn a_run_directory_holds_all_files_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a/b");
    write(&RunDirectory::reserve(&place, false).unwrap(), "run").unwrap();
    assert_eq!(names(&place), RUN_FILES);
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for place in ["a", "b"] {
        write(&RunDirectory::reserve(&directory.path().join(place), false).unwrap(), "run")
            .unwrap();
    }
    for name in RUN_FILES {
        let read = |place: &str| fs::read(directory.path().join(place).join(name)).unwrap();
        assert_eq!(read("a"), read("b"), "{name}");
    }
}

#[test]
fn runs_over_the_path_of_one_file_share_it_and_leave_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    skyhop_files::write_path(&trace(), &at("shared.parquet")).unwrap();
    let bytes = fs::read(at("shared.parquet")).unwrap();
    let inode = |file: &Path| fs::metadata(file).unwrap().ino();
    // A second run in the same place, as with `--force`; then a path without its file, as on another file
    // system.
    for (file, is_shared) in [("shared.parquet", true), ("shared.parquet", true), ("none", false)] {
        let reserved = RunDirectory::reserve(&at("run"), true).unwrap();
        let mut writer = reserved.writer(&trace(), Some(&at(file))).unwrap();
        begin(&mut writer);
        end(&mut writer, "run").unwrap();
        drop(writer);
        let path = at("run/path.parquet");
        assert_eq!(inode(&path) == inode(&at("shared.parquet")), is_shared);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::read(at("shared.parquet")).unwrap(), bytes);
        assert_eq!(names(&at("run")), RUN_FILES);
    }
}

#[test]
fn a_summary_alone_is_what_a_directory_holds() {
    let mut kept = SummaryOnly::default();
    kept.write(Piece::Flows(vec![flow(5)])).unwrap();
    assert_eq!(kept, SummaryOnly::default(), "rows are forgotten, and the run has not ended");
    let summary = Summary { data_packets: 7, ..Summary::default() };
    kept.write(Piece::Summary(Box::new(summary.clone()))).unwrap();
    assert_eq!(*kept.summary.unwrap(), summary);
}

#[test]
fn a_long_run_can_be_read_while_it_is_written_and_is_one_table_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let reserved = RunDirectory::reserve(directory.path(), false).unwrap();
    let mut writer = reserved.writer(&trace(), None).unwrap();
    begin(&mut writer);
    let rows = 50_000;
    for t_ns in 0..rows {
        writer.write(Piece::Flows(vec![flow(t_ns)])).unwrap();
        writer.write(Piece::Probes(vec![probe(7, t_ns), probe(2, t_ns)])).unwrap();
    }
    let [staging] = &names(directory.path())[..] else { panic!("{:?}", names(directory.path())) };
    let staging = directory.path().join(staging);
    assert_eq!(column(&staging.join("flows.000000.000000.parquet"), "t_ns")[..3], [0, 1, 2]);
    let segments = names(&staging);
    assert!(segments.iter().filter(|name| name.starts_with("flows.")).count() >= 3, "{segments:?}");
    assert!(segments.iter().all(|name| !name.starts_with(".skyhop-")), "{segments:?}");
    end(&mut writer, "run").unwrap();
    drop(writer);
    assert_eq!(names(directory.path()), RUN_FILES);
    let flows = column(&directory.path().join("flows.parquet"), "t_ns");
    assert_eq!(flows, (0..rows).collect::<Vec<_>>());
    let probes = column(&directory.path().join("probes.parquet"), "seq");
    assert_eq!(probes, (0..rows).chain(0..rows).collect::<Vec<_>>());
}

#[test]
fn a_run_that_is_given_up_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let reserved = RunDirectory::reserve(&directory.path().join("run"), false).unwrap();
    let mut writer = reserved.writer(&trace(), None).unwrap();
    begin(&mut writer);
    (0..20_000).for_each(|t_ns| writer.write(Piece::Flows(vec![flow(t_ns)])).unwrap());
    drop(writer);
    reserved.abandon().unwrap();
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_run_aside_is_written_straight_into_its_directory_and_takes_it_away_where_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (place, usual) = (directory.path().join("aside"), directory.path().join("usual"));
    fs::create_dir(&place).unwrap();
    let aside = RunDirectory::moved_by_caller(&place);
    let mut writer = aside.writer(&trace(), None).unwrap();
    begin(&mut writer);
    assert_eq!(names(&place), ["path.parquet"], "no directory is made that goes again");
    drop(writer);
    assert!(!place.exists());
    write(&aside, "run").unwrap();
    write(&RunDirectory::reserve(&usual, false).unwrap(), "run").unwrap();
    assert_eq!(names(&place), RUN_FILES);
    for name in RUN_FILES {
        assert_eq!(fs::read(place.join(name)).unwrap(), fs::read(usual.join(name)).unwrap());
    }
}

#[test]
fn what_a_killed_run_left_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    // The directory's name does not matter: process numbers are reused.
    let own = format!(".run.partial-{}", std::process::id());
    for name in [".run.partial-1", ".run.partial-4194305", &own] {
        let left = directory.path().join(name);
        fs::create_dir(&left).unwrap();
        fs::write(left.join("flows.000000.000000.parquet"), "rows").unwrap();
        mark(&left);
    }
    let reserved = RunDirectory::reserve(directory.path(), false).unwrap();
    write(&reserved, "run").unwrap();
    assert_eq!(names(directory.path()), RUN_FILES);
}

#[test]
fn a_run_that_goes_on_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        RunDirectory::reserve(directory.path(), false).unwrap().writer(&trace(), None).unwrap();
    begin(&mut writer);
    let refused = RunDirectory::reserve(directory.path(), false);
    assert!(matches!(refused, Err(FileError::NotEmpty { .. })));
    write(&RunDirectory::reserve(directory.path(), true).unwrap(), "other").unwrap();
    end(&mut writer, "run").unwrap();
    drop(writer);
    assert_eq!(names(directory.path()), RUN_FILES);
    assert!(fs::read_to_string(directory.path().join("run.json")).unwrap().contains("\"run\""));
}

/// Carry out the first `moves` moves of a replacement, as if the process had been killed after them.
fn killed_while_it_replaces(place: &Path, moves: usize) {
    let staging = place.join(".run.partial-x");
    write(&RunDirectory::reserve(&staging, false).unwrap(), "second").unwrap();
    mark(&staging);
    fs::create_dir(staging.join("earlier")).unwrap();
    // The order of moves is that of src/replacing.rs.
    let mut files = RUN_FILES;
    files.reverse();
    let out = files.map(|name| (place.join(name), staging.join("earlier").join(name)));
    let all_out = (staging.join("earlier"), staging.join("replaced"));
    files.reverse();
    let into = files.map(|name| (staging.join(name), place.join(name)));
    let all = out.into_iter().chain([all_out]).chain(into);
    all.take(moves).for_each(|(from, to)| fs::rename(from, to).unwrap());
}

#[test]
fn a_process_killed_while_it_replaces_a_run_mixes_nothing() {
    for moves in 0..=2 * RUN_FILES.len() + 1 {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        write(&RunDirectory::reserve(place, false).unwrap(), "first").unwrap();
        killed_while_it_replaces(place, moves);
        let was_whole = place.join("summary.json").exists();
        assert_eq!(was_whole, moves == 0 || moves == 2 * RUN_FILES.len() + 1, "{moves}");
        let refused = RunDirectory::reserve(place, false);
        assert!(matches!(refused, Err(FileError::NotEmpty { .. })), "a run is there: {moves}");
        assert_eq!(names(place), RUN_FILES, "{moves}");
        let run = fs::read_to_string(place.join("run.json")).unwrap();
        assert!(run.contains("second"), "{moves}: {run}");
    }
}

#[test]
fn what_a_killed_process_left_does_not_go_over_a_later_run() {
    for moves in 1..=2 * RUN_FILES.len() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        write(&RunDirectory::reserve(place, false).unwrap(), "first").unwrap();
        // The third run reserves the place while the second run's process is still alive.
        let reserved = RunDirectory::reserve(place, true).unwrap();
        killed_while_it_replaces(place, moves);
        write(&reserved, "third").unwrap();
        let refused = RunDirectory::reserve(place, false);
        assert!(matches!(refused, Err(FileError::NotEmpty { .. })), "a run is there: {moves}");
        assert_eq!(names(place), RUN_FILES, "{moves}");
        let run = fs::read_to_string(place.join("run.json")).unwrap();
        assert!(run.contains("third"), "{moves}: {run}");
    }
}

#[test]
fn a_directory_in_use_is_refused_unless_forced() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("precious"), "x").unwrap();
    let refused = RunDirectory::reserve(directory.path(), false);
    assert!(matches!(refused, Err(FileError::NotEmpty { .. })));
    write(&RunDirectory::reserve(directory.path(), true).unwrap(), "run").unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("precious")).unwrap(), "x");
    let file = directory.path().join("precious");
    assert!(matches!(RunDirectory::reserve(&file, true), Err(FileError::NotADirectory { .. })));
}

/// Content of all files below a directory, by path.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(path).unwrap())),
        }
    }
    found
}

proptest! {
    #[test]
    fn a_foreign_directory_loses_nothing(
        files in prop::collection::btree_map(
            (0_usize..6, 0_usize..RUN_FILES.len() + 4),
            prop::sample::select(vec!["x", "{}", "PAR1", "{\"schema\": 1}", "\n"]),
            1..8,
        ),
        force: bool,
    ) {
        let directories =
            ["", ".skyhop-a", ".run.partial-1", ".run.partial-1/replaced", "unfinished", ".new-a"];
        let others = [".lock", ".repeat", ".skyhop-x", "requests.parquet"];
        let names: Vec<&str> = RUN_FILES.into_iter().chain(others).collect();
        let place = tempfile::tempdir().unwrap();
        for ((directory, name), content) in &files {
            let directory = place.path().join(directories[*directory]);
            // A file may have the name of the directory.
            if fs::create_dir_all(&directory).is_ok() && !directory.join(names[*name]).exists() {
                fs::write(directory.join(names[*name]), content).unwrap();
            }
        }
        let before = contents(place.path());
        // The run succeeds only where it replaces nothing.
        let _ = RunDirectory::reserve(place.path(), force)
            .and_then(|reserved| write(&reserved, "run"));
        let after = contents(place.path());
        for (path, content) in before {
            prop_assert_eq!(after.get(&path), Some(&content), "{}", path.display());
        }
    }
}

#[test]
fn runs_that_end_at_the_same_time_leave_one_whole_run() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    for _ in 0..20 {
        let writers: Vec<_> = ["a", "b", "c"]
            .map(|run| {
                let reserved = RunDirectory::reserve(place, true).unwrap();
                let mut writer = reserved.writer(&trace(), None).unwrap();
                begin(&mut writer);
                writer.write(Piece::Flows(vec![flow(i64::from(run.as_bytes()[0]))])).unwrap();
                (writer, run)
            })
            .into();
        std::thread::scope(|scope| {
            for (mut writer, run) in writers {
                scope.spawn(move || end(&mut writer, run).unwrap());
            }
        });
        assert_eq!(names(place), RUN_FILES);
        let run = fs::read_to_string(place.join("run.json")).unwrap();
        let t_ns = column(&place.join("flows.parquet"), "t_ns")[0];
        let name = char::from(u8::try_from(t_ns).unwrap());
        assert!(run.contains(&format!("\"{name}\"")), "{name}: {run}");
    }
}

#[test]
fn tables_of_an_earlier_runs_applications_do_not_stay() {
    let directory = tempfile::tempdir().unwrap();
    let reserved = RunDirectory::reserve(directory.path(), false).unwrap();
    let mut writer = reserved.writer(&trace(), None).unwrap();
    begin(&mut writer);
    for seq in 0..2 {
        let row = AppRow { seq, latency_ns: Some(7), ..AppRow::default() };
        writer.write(Piece::App(AppTable::Requests, vec![row])).unwrap();
    }
    end(&mut writer, "first").unwrap();
    drop(writer);
    assert_eq!(column(&directory.path().join("requests.parquet"), "seq"), [0, 1]);
    write(&reserved, "second").unwrap();
    assert_eq!(names(directory.path()), RUN_FILES);
}

#[test]
fn an_abandoned_directory_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    RunDirectory::reserve(&directory.path().join("a/b"), false).unwrap().abandon().unwrap();
    assert!(names(directory.path()).is_empty());
    RunDirectory::reserve(directory.path(), false).unwrap().abandon().unwrap();
    assert!(directory.path().exists(), "what was there before stays");
}

#[test]
fn a_failed_write_leaves_the_earlier_run_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("run");
    let reserved = RunDirectory::reserve(&place, false).unwrap();
    write(&reserved, "first").unwrap();
    let before = fs::read(place.join("run.json")).unwrap();
    let mut writer = reserved.writer(&trace(), None).unwrap();
    begin(&mut writer);
    // A directory in the way of a staged file makes its move fail half-way, as a disk error would.
    let staging = names(&place).into_iter().find(|name| name.starts_with(".run.partial-"));
    fs::create_dir(place.join(staging.unwrap()).join("summary.json")).unwrap();
    let error = end(&mut writer, "second").unwrap_err();
    drop(writer);
    assert!(error.to_string().contains("run/summary.json: "), "{error}");
    assert_eq!(fs::read(place.join("run.json")).unwrap(), before);
    assert_eq!(names(&place), RUN_FILES);
}

#[test]
fn an_earlier_run_comes_back_where_one_of_its_files_cannot_be_moved() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let reserved = RunDirectory::reserve(place, false).unwrap();
    write(&reserved, "first").unwrap();
    let before = RUN_FILES.map(|name| fs::read(place.join(name)).unwrap());
    let mut writer = reserved.writer(&trace(), None).unwrap();
    begin(&mut writer);
    // Only a directory can be moved to this name.
    let staging = names(place).into_iter().find(|name| name.starts_with(".run.partial-"));
    let in_the_way = place.join(staging.unwrap()).join("earlier/link.parquet");
    fs::create_dir_all(in_the_way).unwrap();
    let error = end(&mut writer, "second").unwrap_err();
    assert!(error.to_string().contains("link.parquet: cannot write: "), "{error}");
    drop(writer);
    assert_eq!(names(place), RUN_FILES);
    assert_eq!(RUN_FILES.map(|name| fs::read(place.join(name)).unwrap()), before);
}

#[test]
fn an_earlier_run_stays_whole_where_something_else_has_a_files_name() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    for name in ["summary.json", "requests.parquet"] {
        write(&RunDirectory::reserve(place, true).unwrap(), "first").unwrap();
        let reserved = RunDirectory::reserve(place, true).unwrap();
        fs::remove_file(place.join(name)).unwrap_or_default();
        fs::create_dir(place.join(name)).unwrap();
        fs::write(place.join(name).join("precious"), "x").unwrap();
        let before = (names(place), fs::read(place.join("run.json")).unwrap());
        // The directory appears while the run is going on, or was there before it.
        for error in [
            write(&reserved, "second").unwrap_err(),
            RunDirectory::reserve(place, true).unwrap_err(),
        ] {
            assert!(
                matches!(&error, FileError::NotAFile { path } if path.ends_with(name)),
                "{error}"
            );
        }
        assert_eq!((names(place), fs::read(place.join("run.json")).unwrap()), before);
        fs::remove_dir_all(place.join(name)).unwrap();
    }
}

#[test]
fn a_place_that_cannot_be_reserved_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let impossible = directory.path().join("new").join("x".repeat(300));
    assert!(RunDirectory::reserve(&impossible, false).is_err());
    assert!(names(directory.path()).is_empty());
}
