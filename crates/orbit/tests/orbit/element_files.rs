//! Parsing of files of element sets: used records, skipped ones with their reasons, and refused files.

use std::io::Write;
use std::path::Path;

use skyhop_orbit::{
    Constellation, EarthModel, ElementFile, Ephemeris, SatelliteFilter, Selection, SkipReason,
};
use skyhop_units::{Duration, UtcInstant};

/// Example of Spacetrack Report 3's format from CelesTrak's documentation.
const ISS: [&str; 2] = [
    "1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927",
    "2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537",
];

pub fn tle(name: &str) -> String {
    format!("{name}\n{}\n{}\n", ISS[0], ISS[1])
}

fn parse(text: &str) -> ElementFile {
    ElementFile::parse(text.as_bytes(), "x.tle").unwrap()
}

fn message(bytes: &[u8]) -> String {
    let message = ElementFile::parse(bytes, "x.tle").unwrap_err().to_string();
    assert!(message.contains("x.tle") && !message.contains('\n'), "{message}");
    message
}

pub fn selection(satellites: &str) -> Selection {
    Selection {
        start: None,
        duration: Duration::from_secs(60),
        stale_after: Duration::from_secs(14 * 86_400),
        satellites: satellites.parse().unwrap(),
        minimum_elevation_deg: 25.0,
    }
}

/// Record of an orbit at 550 km in the formats that CelesTrak serves.
pub fn record(name: &str, number: u32) -> [(&'static str, String); 17] {
    [
        ("OBJECT_NAME", name.to_owned()),
        ("OBJECT_ID", "2019-074A".to_owned()),
        ("EPOCH", "2026-05-19T10:57:00.123456".to_owned()),
        ("MEAN_MOTION", "15.06".to_owned()),
        ("ECCENTRICITY", "0.0001".to_owned()),
        ("INCLINATION", "53.05".to_owned()),
        ("RA_OF_ASC_NODE", "200.5".to_owned()),
        ("ARG_OF_PERICENTER", "90".to_owned()),
        ("MEAN_ANOMALY", "270".to_owned()),
        ("EPHEMERIS_TYPE", "0".to_owned()),
        ("CLASSIFICATION_TYPE", "U".to_owned()),
        ("NORAD_CAT_ID", number.to_string()),
        ("ELEMENT_SET_NO", "999".to_owned()),
        ("REV_AT_EPOCH", "35976".to_owned()),
        ("BSTAR", ".00021979".to_owned()),
        ("MEAN_MOTION_DOT", "1E-4".to_owned()),
        ("MEAN_MOTION_DDOT", "0".to_owned()),
    ]
}

pub fn as_csv(records: &[[(&str, String); 17]]) -> String {
    let header: Vec<&str> = records[0].iter().map(|(key, _)| *key).collect();
    let row = |record: &[(&str, String); 17]| {
        record.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>().join(",")
    };
    let rows: Vec<String> = records.iter().map(row).collect();
    format!("{}\n{}\n", header.join(","), rows.join("\n"))
}

pub fn as_json(records: &[[(&str, String); 17]]) -> String {
    let field = |(key, value): &(&str, String)| match value.parse::<f64>() {
        Ok(number) => format!("\"{key}\":{number}"),
        Err(_) => format!("\"{key}\":\"{value}\""),
    };
    let object = |record: &[(&str, String); 17]| {
        format!("{{{}}}", record.iter().map(field).collect::<Vec<_>>().join(","))
    };
    format!("[{}]", records.iter().map(object).collect::<Vec<_>>().join(","))
}

pub fn as_kvn(records: &[[(&str, String); 17]]) -> String {
    let message = |record: &[(&str, String); 17]| {
        let lines: String =
            record.iter().map(|(key, value)| format!("{key:<18} = {value}\n")).collect();
        format!(
            "CCSDS_OMM_VERS = 2.0\n\n{}",
            lines.replace("CLINATION        = 53.05", "CLINATION = 53.05 [deg]")
        )
    };
    records.iter().map(message).collect()
}

pub fn as_xml(records: &[[(&str, String); 17]]) -> String {
    let field = |(key, value): &(&str, String)| format!("<{key}>{value}</{key}>");
    let message = |record: &[(&str, String); 17]| {
        let (metadata, elements) = record.split_at(2);
        let text =
            |part: &[(&str, String)]| part.iter().map(field).collect::<Vec<_>>().join("\n    ");
        format!(
            "<omm id=\"CCSDS_OMM_VERS\" version=\"2.0\"><header><CREATION_DATE/></header>\
             <body><segment><metadata>{}</metadata><data><meanElements>{}</meanElements></data>\
             </segment></body></omm>",
            text(metadata),
            text(elements)
        )
    };
    let messages = records.iter().map(message).collect::<Vec<_>>().join("\n");
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ndm>{messages}</ndm>\n")
}

#[test]
fn two_and_three_lines_with_any_line_end_are_read() {
    let [first, second] = ISS;
    for text in [
        format!("{first}\n{second}\n"),
        format!("{first}\r\n{second}"),
        format!("ISS (ZARYA)             \n{first}\n{second}\n"),
        format!("\u{feff}0 ISS (ZARYA)\r\n{first}\r\n{second}\r\n\r\n"),
    ] {
        let file = parse(&text);
        assert_eq!((file.sets.len(), file.skipped.len()), (1, 0), "{text}");
        let elements = file.sets[0].elements();
        assert!(["ISS (ZARYA)", "line 1"].contains(&elements.name.as_str()), "{}", elements.name);
        assert_eq!(elements.catalogue_number, 25544);
        let epoch: UtcInstant = "2008-09-20T12:25:40.104192Z".parse().unwrap();
        assert!(elements.epoch.unix_nanos().abs_diff(epoch.unix_nanos()) < 1_000);
        assert_eq!((elements.inclination_deg, elements.eccentricity), (51.6416, 0.000_670_3));
    }
}

#[test]
fn the_four_forms_of_omm_say_the_same() {
    let records = [record("ONE &amp; ALL", 44714), record("TWO", 100_001)];
    let plain = records.clone().map(|mut r| {
        r[0].1 = r[0].1.replace("&amp;", "&");
        r
    });
    let files = [as_json(&plain), as_csv(&plain), as_kvn(&plain), as_xml(&records)]
        .map(|text| parse(&text));
    for file in &files {
        assert_eq!(file.skipped, []);
        assert_eq!(file.sets, files[0].sets);
        let elements = file.sets[0].elements();
        assert_eq!(elements.name, "ONE & ALL");
        assert_eq!(elements.epoch.to_string(), "2026-05-19T10:57:00.123456Z");
        assert_eq!(file.sets[1].elements().catalogue_number, 100_001);
    }
}

#[test]
fn records_that_cannot_be_used_are_named_with_the_reason() {
    let [first, second] = ISS;
    let wrong_sum = first.replace("2927", "2928");
    let nan = second.replace(" 15.72125391", "         NaN");
    let nan = with_checksum(&nan[..68]);
    let cases = [
        (format!("A\n{first}\nB\n{first}\n{second}\n"), "A", "one line missing"),
        (format!("A\n{second}\n"), "A", "one line missing"),
        (format!("{first}\n"), "line 1", "one line missing"),
        (format!("A\n{wrong_sum}\n{second}\n"), "A", "wrong checksum"),
        (format!("A\n{}\n{second}\n", &first[..60]), "A", "malformed"),
        (format!("A\n{first}\n{nan}\n"), "A", "impossible"),
        (format!("A\n{}\n{second}\n", first.replace("08264", "08\u{e9}6")), "A", "malformed"),
    ];
    for (text, name, kind) in cases {
        let file = parse(&text);
        assert_eq!(file.skipped.len(), 1, "{text}");
        assert_eq!((file.skipped[0].name.as_str(), file.skipped[0].reason.kind()), (name, kind));
    }
    let mut broken = record("A", 1);
    broken[3].1 = "NaN".to_owned();
    let mut missing = record("B", 2);
    missing[5].1.clear();
    let mut odd = record("C", 3);
    odd[2].1 = "yesterday".to_owned();
    let file = parse(&as_csv(&[broken, missing, odd, record("D", 4)]));
    assert_eq!(file.sets.len(), 1);
    let reasons: Vec<String> = file.skipped.iter().map(|s| s.reason.to_string()).collect();
    let expected = [
        "impossible: the mean motion is NaN",
        "malformed: no INCLINATION",
        "malformed: EPOCH is \"yesterday\"",
    ];
    assert_eq!(reasons, expected);
}

/// Append the checksum to a line.
fn with_checksum(body: &str) -> String {
    let value = |c: char| c.to_digit(10).unwrap_or(u32::from(c == '-'));
    format!("{body}{}", body.chars().map(value).sum::<u32>() % 10)
}

#[test]
fn a_report_says_why_if_all_skipped_records_have_the_same_reason() {
    let cut = |line: &str| line[..68].to_owned();
    let text = format!("A\n{}\n{}\nB\n{}\n{}\n", cut(ISS[0]), ISS[1], cut(ISS[0]), ISS[1]);
    let error = parse(&text).constellation(&selection("all")).unwrap_err().to_string();
    let reason =
        "2 malformed (A, B): line 1 has 68 characters, expected 69 (the last is the checksum)";
    assert!(error.contains(reason), "{error}");
    let other = format!("{text}C\n{}\n{}\n", &ISS[0][..60], ISS[1]);
    let error = parse(&other).constellation(&selection("all")).unwrap_err().to_string();
    assert!(error.contains("3 malformed (A, B, C)") && !error.contains("characters"), "{error}");
}

#[test]
fn indented_element_sets_are_read() {
    let indented: String = tle("A").lines().map(|line| format!("    {line}\n")).collect();
    assert_eq!(parse(&indented).sets, parse(&tle("A")).sets);
}

#[test]
fn duplicates_stale_and_decayed_sets_are_counted_by_kind() {
    let decayed = with_checksum(&ISS[1].replace("15.72125391", "17.40000000")[..68]);
    let old =
        with_checksum(&ISS[0].replace("25544U", "11111U").replace("08264.5", "80264.5")[..68]);
    let old_second = with_checksum(&ISS[1].replace("25544", "11111")[..68]);
    let low = with_checksum(&ISS[0].replace("25544U", "22222U")[..68]);
    let low_second = with_checksum(&decayed.replace("25544", "22222")[..68]);
    let text = format!(
        "{}{}OLD\n{old}\n{old_second}\nLOW\n{low}\n{low_second}\n",
        tle("GOOD"),
        tle("AGAIN")
    );
    let constellation = parse(&text).constellation(&selection("all")).unwrap();
    let report = constellation.report.unwrap();
    assert_eq!((report.records, report.used), (4, 1));
    assert_eq!(
        report.to_string(),
        "x.tle: 1 of 4 element sets used; skipped: 1 decayed (LOW), 1 duplicate (AGAIN), 1 stale (OLD)"
    );
    let stale = report.skipped.iter().find(|skipped| skipped.name == "OLD").unwrap();
    let SkipReason::Stale { age_days } = stale.reason else { panic!("{stale:?}") };
    assert!((age_days - 28.0 * 365.25).abs() < 2.0, "{age_days}");
    assert_eq!(constellation.element_sets[0].elements().name, "GOOD");
}

#[test]
fn of_duplicates_the_one_nearest_to_the_start_is_used() {
    let later = with_checksum(&ISS[0].replace("08264.5", "08267.5")[..68]);
    let file = parse(&format!("{}LATER\n{later}\n{}\n", tle("FIRST"), ISS[1]));
    for (start, name) in [("2008-09-20T12:00:00Z", "FIRST"), ("2008-09-24T00:00:00Z", "LATER")] {
        let start = Some(start.parse().unwrap());
        let chosen = file.constellation(&Selection { start, ..selection("all") }).unwrap();
        assert_eq!(chosen.element_sets[0].elements().name, name);
    }
}

#[test]
fn a_start_far_from_all_epochs_is_an_error_that_names_a_better_one() {
    let start: UtcInstant = "2019-12-01T00:00:00Z".parse().unwrap();
    let wanted = Selection { start: Some(start), ..selection("all") };
    let message = parse(&tle("A")).constellation(&wanted).unwrap_err().to_string();
    assert!(message.contains("1 stale (A)"), "{message}");
    assert!(message.contains("2008-09-20T12:25:00Z"), "{message}");
}

#[test]
fn a_filter_that_selects_no_satellite_is_named() {
    let message = parse(&tle("A")).constellation(&selection("name=B*")).unwrap_err().to_string();
    assert!(message.contains("1 not asked for (A)"), "{message}");
    assert!(message.ends_with("; the key satellites selects none of them: change it"), "{message}");
}

#[test]
fn files_of_something_else_are_refused() {
    assert!(message(b"<!DOCTYPE html><html><body>404</body></html>").contains("HTML"));
    assert!(message(b"\n <html>").contains("HTML"));
    assert!(message(b"").contains("no element sets"));
    assert!(message(b"No GP data found").contains("\"No GP data found\""));
    assert!(message(b"PK\x03\x04\0\0\0").contains("x.tle is a zip archive: unpack it"));
    assert!(message(b"CCSDS_OEM_VERS = 2.0\n").contains("is an OEM of ephemerides"));
    assert!(message(b"[{\"OBJECT_NAME\": ").contains("JSON"));
    assert!(message(b"[{\"MEAN_MOTION\": NaN}]").contains("JSON"));
    assert!(message(b"<?xml version=\"1.0\"?><ndm><omm>").contains("XML"));
    assert!(message(b"<ndm><omm></ndm>").contains("XML"));
}

#[test]
fn gzipped_and_damaged_files_are_told_apart() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("element-sets.tle.gz");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(tle("A").as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(ElementFile::load(&path).unwrap().sets.len(), 1);
    assert!(ElementFile::is_likely(&path).unwrap());
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let message = ElementFile::load(&path).unwrap_err().to_string();
    assert!(message.contains("cannot read") && !message.contains('\n'), "{message}");
    let message = ElementFile::load(&folder.join("nothing.tle")).unwrap_err().to_string();
    assert!(message.contains("nothing.tle"), "{message}");
}

#[test]
fn a_file_of_200_mb_is_refused_before_it_is_read_whole() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("huge.tle");
    // The file is sparse and takes no space on the disk.
    std::fs::File::create(&path).unwrap().set_len(200_000_000).unwrap();
    let message = ElementFile::load(&path).unwrap_err().to_string();
    assert!(message.contains("more than 128 MB"), "{message}");
}

#[test]
fn a_constellation_file_is_not_taken_for_element_sets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/constellations");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(!ElementFile::is_likely(&path).unwrap(), "{}", path.display());
    }
}

fn real(name: &str, satellites: &str) -> Option<Constellation> {
    let file = ElementFile::load(&skyhop_needs::reference(name)?).unwrap();
    let constellation = file.constellation(&selection(satellites)).unwrap();
    println!("{}", constellation.report.as_ref().unwrap());
    Some(constellation)
}

#[test]
fn real_constellations_are_accounted_for_record_by_record() {
    are_accounted_for(&[("tle/oneweb_20250319.tle.gz", 651), ("leoem/starlink_old.tle.gz", 1_696)]);
}

#[test]
#[ignore = "soak: takes long"]
fn large_constellations_are_accounted_for_record_by_record() {
    are_accounted_for(&[
        ("tle/starlink_19-05-2026.tle.gz", 10_363),
        ("tle/starlink_20-05-2026.tle.gz", 10_360),
    ]);
}

fn are_accounted_for(constellations: &[(&str, usize)]) {
    for &(name, records) in constellations {
        let Some(constellation) = real(name, "all") else { return };
        let report = constellation.report.as_ref().unwrap();
        assert_eq!(report.records, records);
        assert_eq!(report.used + report.skipped.len(), records);
        assert!(report.used as f64 > 0.98 * records as f64);
        let mut positions = Vec::new();
        let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
        ephemeris.earth_fixed(constellation.epoch, &mut positions);
        assert_eq!(positions.len(), report.used);
        for position in positions {
            assert!((6.45e6..=ephemeris.largest_radius_m()).contains(&position.length()));
        }
    }
}

#[test]
fn filters_choose_among_real_satellites() {
    let Some(all) = real("tle/oneweb_20250319.tle.gz", "all") else { return };
    let Some(some) = real("tle/oneweb_20250319.tle.gz", "name=ONEWEB-00*") else { return };
    let wanted = |name: &str| name.starts_with("ONEWEB-00");
    let expected = all.element_sets.iter().filter(|s| wanted(&s.elements().name)).count();
    assert_eq!(some.element_sets.len(), expected);
    let Some(planes) = real("tle/oneweb_20250319.tle.gz", "shell=0; plane=0-1") else { return };
    let report = planes.report.as_ref().unwrap();
    assert!((90..=125).contains(&report.used), "{}", report.used);
    assert_eq!(report.kinds()["not asked for"], report.records - report.used - others(report));
    assert!("plane".parse::<SatelliteFilter>().is_err());
}

/// Number of records skipped for another reason than the filter.
fn others(report: &skyhop_orbit::RecordReport) -> usize {
    let is_other = |s: &&skyhop_orbit::Skipped| s.reason != SkipReason::FilteredOut;
    report.skipped.iter().filter(is_other).count()
}

/// Correct the checksums of a text's element lines, so that the parsing after their check is reached.
pub fn summed(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| match line.char_indices().nth(68) {
        Some((end, _)) if line.starts_with(['1', '2']) => with_checksum(&line[..end]),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n").into_bytes()
}
