//! Sources of films: TOML, manifests and lists of sizes, and errors in them.

use skyhop_units::{Duration, Rate};
use skyhop_video::film::{film_names, film_of_mpd, film_of_size_lists};
use skyhop_video::{Film, RateTrace};

fn refused(text: &str) -> String {
    Film::of_toml(text, "film.toml").unwrap_err().to_string()
}

#[test]
fn the_films_that_come_with_skyhop_are_those_of_their_sources() {
    assert_eq!(film_names(), ["pensieve", "satpipe", "six-tracks"]);
    let [pensieve, satpipe, six] =
        ["pensieve", "satpipe", "six-tracks"].map(|name| Film::shipped(name).unwrap());
    assert_eq!((pensieve.chunks(), pensieve.length()), (48, Duration::from_secs(192)));
    assert_eq!((satpipe.chunks(), satpipe.chunk), (318, Duration::from_secs(2)));
    assert_eq!((six.chunks(), six.length()), (45, Duration::from_secs(180)));
    let bitrates = |film: &Film| -> Vec<u64> {
        (0..film.tracks.len()).map(|track| film.bitrate_bps(track) / 1000).collect()
    };
    assert_eq!(bitrates(&pensieve), [300, 750, 1200, 1850, 2850, 4300]);
    assert_eq!(bitrates(&satpipe), [210, 951, 1451, 2642, 4906, 7427, 13611]);
    assert_eq!(bitrates(&six), [13168, 19753, 29629, 44444, 66666, 100_000]);
    assert_eq!(pensieve.size_bytes(47, 5), 2_150_000);
    for film in [pensieve, satpipe, six] {
        assert!(!film.description.is_empty() && !film.source.is_empty(), "{}", film.name);
    }
    let unknown = Film::shipped("bunny").unwrap_err().to_string();
    assert_eq!(unknown, "unknown film \"bunny\"; expected pensieve, satpipe, six-tracks");
}

#[test]
fn another_top_scales_the_ladder() {
    let six = Film::shipped("six-tracks").unwrap();
    let film = six.with_top(Rate::from_bits_per_second(160_000_000)).unwrap();
    assert_eq!(film.bitrate_bps(5), 160_000_000);
    assert!(film.bitrate_bps(4).abs_diff(106_666_667) <= 1);
    assert_eq!(film.size_bytes(3, 5), 80_000_000);
    let nothing = six.with_top(Rate::from_bits_per_second(1)).unwrap_err().to_string();
    assert_eq!(nothing, "six-tracks: track 0 has a bitrate of 0 bit/s; expected more");
}

#[test]
fn drawn_sizes_are_the_seeds_and_have_the_mean_and_the_spread_that_is_stated() {
    let of = |seed: u64| {
        let text = format!(
            "chunk = \"4 s\"\nchunks = 5000\nvariation = {{ relative_sd = 0.3, seed = {seed} }}\n[[track]]\nbitrate = \"2 Mbit/s\"\n[[track]]\nbitrate = \"4 Mbit/s\""
        );
        Film::of_toml(&text, "drawn.toml").unwrap()
    };
    let film = of(1);
    assert_eq!(film, of(1));
    assert_ne!(film, of(2));
    let sizes: Vec<f64> = (0..5000).map(|chunk| film.size_bytes(chunk, 0) as f64 / 1e6).collect();
    let mean = sizes.iter().sum::<f64>() / 5000.0;
    let sd = (sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / 5000.0).sqrt();
    assert!((mean - 1.0).abs() < 0.02 && (sd - 0.3).abs() < 0.02, "{mean} {sd}");
    // The factor of a scene is the same in every track.
    assert!(
        (0..5000)
            .all(|chunk| film.size_bytes(chunk, 1).abs_diff(2 * film.size_bytes(chunk, 0)) <= 1)
    );
}

#[test]
fn what_is_no_film_is_refused_in_one_line() {
    let track = "[[track]]\nbitrate = \"1 Mbit/s\"\n";
    for (text, expected) in [
        (
            "chunk = \"4 s\"\nchunks = 3",
            "film.toml: the film has no tracks; expected at least one [[track]] with a bitrate",
        ),
        (
            &format!("chunk = \"4 s\"\n{track}"),
            "film.toml: the key `chunks` is missing, and no track has sizes",
        ),
        (
            &format!("chunk = \"0 s\"\nchunks = 3\n{track}"),
            "film.toml: a chunk of 0 s; expected 1 ms to 1 h",
        ),
        (
            &format!("chunk = \"4 s\"\nchunks = 0\n{track}"),
            "film.toml: the film has 0 chunks; expected 1 to 86400",
        ),
        (
            &format!("chunk = \"4 s\"\nchunks = 3\n{track}{track}"),
            "film.toml: track 1 has 1 Mbit/s, the track before it 1 Mbit/s; expected ascending bitrates",
        ),
        (
            &format!(
                "chunk = \"4 s\"\n{track}sizes = [1, 2]\n[[track]]\nbitrate = \"2 Mbit/s\"\nsizes = [3]"
            ),
            "film.toml: track 1 has sizes of 1 chunks, track 0 of 2",
        ),
        (
            &format!("chunk = \"4 s\"\nchunks = 3\n{track}sizes = [1, 2]"),
            "film.toml: track 0 has sizes of 2 chunks, but chunks = 3",
        ),
        (
            &format!("chunk = \"4 s\"\n{track}sizes = [1, 0]"),
            "film.toml: chunk 1 of track 0 has 0 B; expected 1 B to 1 TiB",
        ),
        (
            &format!("chunk = \"4 s\"\n{track}sizes = [1, 2]\n[[track]]\nbitrate = \"2 Mbit/s\""),
            "film.toml: 1 of 2 tracks have sizes; expected all or none",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
    assert!(refused("chunk = 4").starts_with("film.toml, line 1: "));
    assert!(refused("chunks = 3\nlength = 4").contains("unknown field `length`"));
}

#[test]
fn a_film_is_written_and_read_again() {
    let film = Film::shipped("satpipe").unwrap();
    let text = toml::to_string(&film.to_keys()).unwrap();
    assert_eq!(Film::of_toml(&text, "satpipe.toml").unwrap(), film);
}

pub const TEMPLATE: &str = r#"<?xml version="1.0"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" mediaPresentationDuration="PT1M8.5S">
 <Period>
  <AdaptationSet contentType="audio"><Representation id="a" bandwidth="64000"/></AdaptationSet>
  <AdaptationSet mimeType="video/mp4">
   <SegmentTemplate timescale="1000" duration="4000" startNumber="1" media="v-$RepresentationID$/$Number%03d$.m4s"/>
   <Representation id="hi" bandwidth="3000000" width="1280" height="720"/>
   <Representation id="lo" bandwidth="750000" height="360"/>
  </AdaptationSet>
 </Period>
</MPD>"#;

pub const TIMELINE: &str = r#"<MPD><Period duration="PT10S"><AdaptationSet contentType="video">
<Representation id="1" bandwidth="1000000"><SegmentTemplate timescale="90000" media="s$Time$.m4s"><SegmentTimeline>
<S t="0" d="360000" r="2"/><S d="90000"/></SegmentTimeline></SegmentTemplate></Representation>
</AdaptationSet></Period></MPD>"#;

pub const LIST: &str = r#"<MPD><Period><AdaptationSet><Representation mimeType="video/mp4" id="1" bandwidth="500000">
<SegmentList timescale="1" duration="2"><SegmentURL media="one.m4s"/><SegmentURL media="two.m4s"/></SegmentList>
</Representation></AdaptationSet></Period></MPD>"#;

fn unknown(_: &str) -> Option<u64> {
    None
}

#[test]
fn a_manifest_is_a_film_with_sizes_of_its_bitrates_or_of_its_files() {
    let film = film_of_mpd(TEMPLATE, "bunny.mpd", &unknown).unwrap();
    assert_eq!(
        (film.name.as_str(), film.chunks(), film.chunk),
        ("bunny", 18, Duration::from_secs(4))
    );
    assert_eq!((film.bitrate_bps(0), film.tracks[1].name.as_deref()), (750_000, Some("720p")));
    assert_eq!(film.size_bytes(17, 1), 1_500_000);
    let sizes = |file: &str| {
        let (track, number) = file.strip_prefix("v-")?.split_once('/')?;
        let number: u64 = number.strip_suffix(".m4s")?.parse().ok()?;
        Some(number * if track == "hi" { 1000 } else { 10 })
    };
    let film = film_of_mpd(TEMPLATE, "bunny.mpd", &sizes).unwrap();
    assert_eq!((film.size_bytes(0, 0), film.size_bytes(17, 1)), (10, 18_000));
    let some = |file: &str| sizes(file).filter(|size| *size != 5000);
    let missing = film_of_mpd(TEMPLATE, "bunny.mpd", &some).unwrap_err().to_string();
    assert_eq!(missing, "bunny.mpd: 35 of the film's files are there, but not \"v-hi/005.m4s\"");
}

#[test]
fn timelines_and_lists_are_films_too() {
    let film = film_of_mpd(TIMELINE, "t.mpd", &unknown).unwrap();
    assert_eq!((film.chunks(), film.chunk), (4, Duration::from_secs(4)));
    let known = |file: &str| {
        ["s0.m4s", "s360000.m4s", "s720000.m4s", "s1080000.m4s"]
            .iter()
            .position(|one| *one == file)
            .map(|at| at as u64 + 1)
    };
    let film = film_of_mpd(TIMELINE, "t.mpd", &known).unwrap();
    assert_eq!(film.sizes_of(3), [4]);
    let film = film_of_mpd(LIST, "l.mpd", &unknown).unwrap();
    assert_eq!((film.chunks(), film.size_bytes(1, 0)), (2, 125_000));
    let refused = |text: &str| film_of_mpd(text, "m.mpd", &unknown).unwrap_err().to_string();
    assert_eq!(refused("<a/>"), "m.mpd, line 1: is not a DASH manifest: it has no MPD element");
    assert_eq!(
        refused("<MPD><Period/></MPD>"),
        "m.mpd: the film has no tracks; expected at least one video Representation"
    );
    assert!(
        refused(&TEMPLATE.replace("duration=\"4000\"", "")).contains("has no length of segments")
    );
}

pub const OPEN_TIMELINE: &str = r#"<MPD mediaPresentationDuration="PT2M0S"><Period><AdaptationSet mimeType="video/mp4">
<SegmentTemplate timescale="1000" presentationTimeOffset="500" media="$RepresentationID$/$Time$.m4s"><SegmentTimeline>
<S t="500" d="4000" r="-1"/></SegmentTimeline></SegmentTemplate>
<Representation id="lo" bandwidth="400000"/><Representation id="hi" bandwidth="1500000"/></AdaptationSet></Period></MPD>"#;

pub const PERIODS: &str = r#"<MPD mediaPresentationDuration="PT2M0S"><BaseURL>films/</BaseURL>
<Period duration="PT20S"><BaseURL>ad/</BaseURL><SegmentTemplate timescale="1000" duration="4000" media="$Number$.m4s"/>
<AdaptationSet mimeType="video/mp4"><Representation id="a" bandwidth="100000"/></AdaptationSet></Period>
<Period start="PT20S"><SegmentTemplate timescale="1000" duration="4000" media="$RepresentationID$/$Number$.m4s"/>
<AdaptationSet mimeType="video/mp4" height="480"><SegmentTemplate startNumber="7"/>
<Representation id="b" bandwidth="200000"/></AdaptationSet></Period></MPD>"#;

#[test]
fn an_open_repeat_count_reaches_to_the_next_segment_or_the_end() {
    let film = film_of_mpd(OPEN_TIMELINE, "t.mpd", &unknown).unwrap();
    assert_eq!((film.chunks(), film.chunk), (30, Duration::from_secs(4)));
    let to_the_next = OPEN_TIMELINE.replace("r=\"-1\"/>", "r=\"-1\"/><S t=\"40500\" d=\"4000\"/>");
    assert_eq!(film_of_mpd(&to_the_next, "t.mpd", &unknown).unwrap().chunks(), 11);
    let refused = |text: &str| film_of_mpd(text, "t.mpd", &unknown).unwrap_err().to_string();
    let endless = OPEN_TIMELINE.replace(" mediaPresentationDuration=\"PT2M0S\"", "");
    assert!(refused(&endless).contains("has no length of the film"));
    assert!(refused(&OPEN_TIMELINE.replace("d=\"4000", "d=\"0")).contains("has no d above 0"));
}

#[test]
fn elements_inherit_from_the_period_and_all_periods_are_played() {
    let film = film_of_mpd(PERIODS, "p.mpd", &unknown).unwrap();
    assert_eq!((film.chunks(), film.bitrate_bps(0)), (30, 200_000));
    assert_eq!((film.size_bytes(4, 0), film.size_bytes(5, 0)), (50_000, 100_000));
    assert_eq!(film.tracks[0].name.as_deref(), Some("480p"));
    let sizes = |file: &str| {
        let (directory, number) = file.strip_suffix(".m4s")?.rsplit_once('/')?;
        let first = if directory == "films/ad" { 0 } else { 1000 };
        ["films/ad", "films/b"].contains(&directory).then(|| first + number.parse::<u64>().unwrap())
    };
    let film = film_of_mpd(PERIODS, "p.mpd", &sizes).unwrap();
    assert_eq!((film.size_bytes(4, 0), film.size_bytes(5, 0)), (5, 1007));
}

#[test]
fn lengths_with_years_and_names_with_references_are_read() {
    let years = TEMPLATE.replace("PT1M8.5S", "P0Y0M0DT0H1M8.5S");
    let expected = film_of_mpd(TEMPLATE, "t.mpd", &unknown).unwrap();
    assert_eq!(film_of_mpd(&years, "t.mpd", &unknown).unwrap(), expected);
    assert!(film_of_mpd(&years.replace("0Y", "1Y"), "t.mpd", &unknown).is_err());
    let named = PERIODS.replace("films/", "<![CDATA[films]]>&amp;more/");
    let sizes = |file: &str| file.starts_with("films&more/").then_some(9);
    assert_eq!(film_of_mpd(&named, "p.mpd", &sizes).unwrap().size_bytes(0, 0), 9);
    let titled = TEMPLATE.replace("<Period", "<Title>A&nbsp;B</Title><Period");
    assert_eq!(film_of_mpd(&titled, "t.mpd", &unknown).unwrap(), expected);
    let error = film_of_mpd(&named.replace("&amp;", "&amq;"), "p.mpd", &sizes).unwrap_err();
    assert!(error.to_string().contains("amq"), "{error}");
}

#[test]
fn pictures_for_a_seek_bar_are_no_track() {
    let trick = "<AdaptationSet mimeType=\"video/mp4\"><EssentialProperty \
                 schemeIdUri=\"http://dashif.org/guidelines/trickmode\" value=\"1\"/>\
                 <Representation id=\"trick\" bandwidth=\"90000\"/></AdaptationSet>";
    let with_trick = TEMPLATE.replace("</Period>", &format!("{trick}</Period>"));
    let expected = film_of_mpd(TEMPLATE, "t.mpd", &unknown).unwrap();
    assert_eq!(film_of_mpd(&with_trick, "t.mpd", &unknown).unwrap(), expected);
}

#[test]
fn a_length_of_its_own_replaces_the_timeline_around_a_representation() {
    let own = "<Representation id=\"lo\" bandwidth=\"400000\"><SegmentTemplate duration=\"4000\"/></Representation>";
    let text = OPEN_TIMELINE
        .replace("<Representation id=\"lo\" bandwidth=\"400000\"/>", own)
        .replace("r=\"-1\"", "r=\"29\"");
    assert_eq!(film_of_mpd(&text, "t.mpd", &unknown).unwrap().chunks(), 30);
    // The two Representations differ if the length is another.
    let text = text.replace("duration=\"4000\"", "duration=\"2000\"");
    let error = film_of_mpd(&text, "t.mpd", &unknown).unwrap_err().to_string();
    assert!(error.contains("60"), "{error}");
}

#[test]
fn what_a_film_of_several_periods_or_of_an_index_lacks_is_said() {
    let refused = |text: &str| film_of_mpd(text, "p.mpd", &unknown).unwrap_err().to_string();
    let other = "<Representation id=\"b\" bandwidth=\"200000\"/>";
    let two = PERIODS.replace(other, &format!("{other}{}", other.replace("200000", "300000")));
    assert_eq!(
        refused(&two),
        "p.mpd: period 2 has 2 video tracks in segments of 4 s, but period 1 has 1 video tracks in segments of 4 s; \
         expected the same in all: give a manifest of one period"
    );
    let silent = PERIODS.replacen("mimeType=\"video/mp4\"", "mimeType=\"audio/mp4\"", 1);
    assert!(refused(&silent).contains("but period 1 has no video tracks"));
    let indexed = LIST.replace(
        "<SegmentList timescale=\"1\" duration=\"2\">",
        "<SegmentBase indexRange=\"820-2087\">",
    );
    let indexed = indexed.replace("</SegmentList>", "</SegmentBase>");
    assert!(refused(&indexed).contains("only the index of the media file has the lengths"));
}

#[test]
fn pensieves_lists_are_a_film() {
    let lists = [
        ("video_size_0".to_owned(), "100\n200\n".to_owned()),
        ("video_size_1".to_owned(), "400\n500".to_owned()),
    ];
    let film = film_of_size_lists("sizes", &lists, Duration::from_secs(4), &[]).unwrap();
    assert_eq!((film.chunks(), film.sizes_of(1)), (2, &[200, 500][..]));
    assert_eq!((film.bitrate_bps(0), film.bitrate_bps(1)), (300, 900));
    let uneven = [lists[0].clone(), ("video_size_1".to_owned(), "400\nmany".to_owned())];
    let refused = |lists: &[(String, String)]| {
        film_of_size_lists("sizes", lists, Duration::from_secs(4), &[]).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&uneven),
        "video_size_1, line 2: \"many\" is not a size; expected a whole number of bytes"
    );
    let short = [lists[0].clone(), ("video_size_1".to_owned(), "400".to_owned())];
    assert_eq!(refused(&short), "sizes: track 1 has sizes of 1 chunks, track 0 of 2");
    assert!(refused(&[]).contains("the film has no tracks"));
}

#[test]
fn a_trace_that_is_none_is_refused_in_one_line() {
    let refused = |starts_s: &[f64], rates: &[f64]| {
        RateTrace::new("t", starts_s, rates, 10.0).unwrap_err().to_string()
    };
    assert_eq!(refused(&[], &[]), "the rate trace \"t\" is empty; expected at least one rate");
    assert_eq!(
        refused(&[0.0, 1.0], &[0.0, 0.0]),
        "the rate trace \"t\": its rate is 0 bit/s throughout, so that nothing ever arrives"
    );
    assert_eq!(
        refused(&[0.0, 1.0], &[1.0, -1.0]),
        "the rate trace \"t\": step 1 has -1 bit/s; expected 0 or more"
    );
    assert!(refused(&[0.0, 0.0], &[1.0, 1.0]).contains("step 1 is at 0 s"));
    assert!(refused(&[0.0, 11.0], &[1.0, 1.0]).contains("step 2 is at 10 s"));
    assert!(refused(&[f64::NAN], &[1.0]).contains("step 0 is at NaN s"));
    assert!(refused(&[0.0], &[1.0, 2.0]).contains("1 times and 2 rates"));
}
