//! Paths with a terminal at one end: which end it is, access profiles, and jitter over computed paths.

use std::ops::ControlFlow;
use std::path::Path;

use skyhop_experiment::Experiment;
use skyhop_files::write_path;
use skyhop_link::LinkSchedule;
use skyhop_model::{DuringOutage, End};
use skyhop_path::{Endpoint, Frame, PathHeader, PathTrace, Place};
use skyhop_scenario::{NamedScenario, ScenarioError, read_scenario};
use skyhop_units::{Bytes, Duration, Instant, Rate};

/// Profile with 10 ms of floor and 3 ms of wait up, 20 and 1 ms down, a rate down only, and no reconfiguration.
const PROFILE: &str = "description = \"d\"\nsource = \"s\"\nlicence = \"l\"\ndate = \"2026\"\n\
                       [up]\nfloor_ms = { CONSTANT = 10 }\nwait_ms = { CONSTANT = 3 }\n\
                       [down]\nfloor_ms = { CONSTANT = 20 }\nwait_ms = { CONSTANT = 1 }\n\
                       rate = { level_mbps = { CONSTANT = 80 } }\nloss = { independent = 0.01 }\n";

/// Profile of which every value is constant.
fn profile() -> String {
    let mut text = PROFILE.to_owned();
    for value in ["10", "3", "20", "1", "80"] {
        let quantiles = vec![value; skyhop_access::RANKS.len()].join(", ");
        let process = format!("quantiles = [{quantiles}], every = \"15 s\"");
        text = text.replace(&format!("CONSTANT = {value} }}"), &format!("{process} }}"));
    }
    text
}

fn named(directory: &Path, text: &str) -> Result<NamedScenario, ScenarioError> {
    let file = directory.join("x.toml");
    std::fs::write(&file, text).unwrap();
    read_scenario(&file, &[])
}

fn place(name: &str) -> Result<Place, String> {
    let known = [("Victoria", 48.43, -123.37), ("Seattle", 47.61, -122.33)];
    let found = known.into_iter().find(|one| one.0 == name);
    found.map(|(name, lat, lon)| Place::new(name, lat, lon)).ok_or(format!("no place {name}"))
}

fn built(directory: &Path, text: &str) -> Result<Experiment, String> {
    let experiment = named(directory, text)
        .and_then(|named| named.experiment(&place, &mut |_, _| ControlFlow::Continue(())));
    let message =
        |error: ScenarioError| error.to_string().replace(&format!("{}/", directory.display()), "");
    experiment.map_err(message)
}

fn error(path: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flat.toml"), profile()).unwrap();
    let wrong = profile().replacen("every", "evry", 1);
    std::fs::write(directory.path().join("wrong.toml"), wrong).unwrap();
    let (without_delays, _) = PROFILE.split_once("[up]").unwrap();
    std::fs::write(directory.path().join("alone.toml"), without_delays).unwrap();
    built(directory.path(), &format!("[path]\n{path}\n[run]\nduration = \"5 s\"\n")).unwrap_err()
}

/// Schedules of the path's link, up and down, of a scenario whose dish is at `dish`.
fn up_and_down(directory: &Path, path: &str, dish: Option<End>) -> [LinkSchedule; 2] {
    let key = dish.map(|dish| format!("dish = \"{dish}\"\n")).unwrap_or_default();
    let ends = match dish.unwrap_or_default() {
        End::From => "from = \"Victoria\"\nto = \"Seattle\"\n",
        End::To => "from = \"Seattle\"\nto = \"Victoria\"\n",
    };
    let text = format!("[path]\n{path}\n{ends}{key}[run]\nduration = \"40 s\"\n");
    let link = built(directory, &text).unwrap().links.remove(0);
    match dish.unwrap_or_default() {
        End::From => [link.forward.schedule, link.back.schedule],
        End::To => [link.back.schedule, link.forward.schedule],
    }
}

#[test]
fn the_terminal_may_be_at_either_end() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flat.toml"), profile()).unwrap();
    for path in [
        "relay = \"access\"",
        "relay = \"starlink\"",
        "relay = \"starlink\"\naccess.profile = \"flat.toml\"",
        "relay = \"access\"\njitter = { above = \"5 ms\", below = \"2 ms\" }",
        "kind = \"access\"\nprofile = \"starlink\"",
        "kind = \"access\"\nprofile = \"flat.toml\"\njitter = { above = \"4 ms\" }",
    ] {
        let [default, from, to] = [None, Some(End::From), Some(End::To)]
            .map(|dish| up_and_down(directory.path(), path, dish));
        assert_eq!(default, from, "{path}");
        for way in 0..2 {
            let (from, to) = (&from[way], &to[way]);
            assert_eq!(from.rate, to.rate, "{path}");
            assert_eq!(from.loss, to.loss, "{path}");
            assert_eq!(from.outages, to.outages, "{path}");
            for ms in (0..40_000).step_by(37) {
                let at = Instant::START + Duration::from_millis(ms);
                let apart = from.delay_at(at).as_nanos().abs_diff(to.delay_at(at).as_nanos());
                assert!(apart <= 1, "{path}: {apart} ns at {at}");
            }
        }
    }
}

#[test]
fn each_direction_of_a_profile_has_its_own_values() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("flat.toml"), profile()).unwrap();
    let path = "kind = \"access\"\nprofile = \"flat.toml\"";
    for dish in [End::From, End::To] {
        let [up, down] = up_and_down(directory.path(), path, Some(dish));
        assert_eq!(up.delay_at(Instant::START), Duration::from_millis(13));
        assert_eq!(down.delay_at(Instant::START), Duration::from_millis(21));
        // The profile has no rate up: that of [link] holds.
        assert_eq!(up.rate[0].value, Rate::from_bits_per_second(150_000_000));
        assert_eq!(down.rate[0].value, Rate::from_bits_per_second(80_000_000));
        assert_eq!(up.loss[0].value.mean(), 0.0);
        assert!((down.loss[0].value.mean() - 0.01).abs() < 1e-12);
    }
}

/// Write a path file whose rate is 10 Mbit/s from the terminal and 90 Mbit/s to it.
fn write_file(file: &Path, dish: Option<End>, relay: Option<&str>) {
    let ends = ["from", "to"].map(Endpoint::named);
    let duration = Duration::from_secs(60);
    let header = PathHeader::plain("test", ends, duration, duration);
    let rates = [10, 90].map(|mbps| Some(Rate::from_bits_per_second(mbps * 1_000_000)));
    let [rate, rate_back] = if dish == Some(End::To) { [rates[1], rates[0]] } else { rates };
    let delay = Some(Duration::from_millis(20));
    let frame = Frame { delay, delay_back: delay, rate, rate_back, ..Frame::default() };
    let header = PathHeader { dish, relay: relay.map(str::to_owned), ..header };
    write_path(&PathTrace { header, frames: vec![frame] }, file).unwrap();
}

#[test]
fn a_path_file_is_mirrored_if_its_terminal_is_at_the_other_end() {
    let directory = tempfile::tempdir().unwrap();
    let rates = |stated: Option<End>, relay: Option<&str>, wanted: &str| {
        write_file(&directory.path().join("x.parquet"), stated, relay);
        let text = format!("[path]\nkind = \"trace\"\nfile = \"x.parquet\"\n{wanted}\n");
        let link = built(directory.path(), &text)?.links.remove(0);
        let mbps = |schedule: &LinkSchedule| schedule.rate[0].value.bits_per_second() / 1_000_000;
        Ok::<_, String>([mbps(&link.forward.schedule), mbps(&link.back.schedule)])
    };
    let (from, to) = ("dish = \"from\"", "dish = \"to\"");
    for stated in [End::From, End::To] {
        assert_eq!(rates(Some(stated), None, from).unwrap(), [10, 90]);
        assert_eq!(rates(Some(stated), None, to).unwrap(), [90, 10]);
    }
    assert_eq!(rates(Some(End::To), None, "").unwrap(), [90, 10], "as it is in the file");
    // An access path of an older skyhop does not say it, but had one place for the terminal.
    assert_eq!(rates(None, Some("access"), from).unwrap(), [10, 90]);
    assert_eq!(rates(None, Some("access"), to).unwrap(), [90, 10]);
    let unknown = rates(None, None, to).unwrap_err();
    assert!(unknown.starts_with("x.toml: path.dish: the path file does not say"), "{unknown}");
    let both = rates(None, Some("isl"), from).unwrap_err();
    assert!(both.contains("has no effect: the path file, of relay = \"isl\", has a"), "{both}");
}

#[test]
fn keys_of_one_terminal_are_refused_where_there_are_two_or_none() {
    let ends = "from = \"Victoria\"\nto = \"Seattle\"\n";
    for relay in ["isl", "bent-pipe", "geo"] {
        let relay = format!("{ends}relay = \"{relay}\"\n");
        let dish = error(&format!("{relay}dish = \"to\""));
        assert!(dish.starts_with("x.toml: path.dish: has no effect: with relay"), "{dish}");
        let access = error(&format!("{relay}access.profile = \"starlink\""));
        assert!(access.starts_with("x.toml: path.access: has no effect with relay"), "{access}");
    }
    let fixed = error("kind = \"fixed\"\nrtt = \"40 ms\"\ndish = \"from\"");
    assert!(fixed.starts_with("x.toml: path.dish: has no effect: a path of kind"), "{fixed}");
    let word = error(&format!("{ends}relay = \"access\"\ndish = \"form\""));
    assert!(word.contains("path.dish") && word.contains("did you mean from?"), "{word}");
    let of_link = error(&format!(
        "{ends}[links.more.path]\nkind = \"fixed\"\nrtt = \"40 ms\"\ndish = \"to\""
    ));
    assert!(of_link.starts_with("x.toml: links.more.path.dish: has no effect"), "{of_link}");
}

#[test]
fn wrong_profiles_are_named() {
    let access = "kind = \"access\"\n";
    for (path, expected) in [
        (format!("{access}profile = \"starlnk\""), "path.profile: unknown access profile \"starlnk\" (did you mean starlink?)"),
        (format!("{access}profile = \"wrong.toml\""), "path.profile: wrong.toml line 6: unknown field `evry`"),
        (format!("{access}profile = \"alone.toml\""), "path.profile: the profile alone holds no round trips"),
        (access.to_owned(), "path.profile: is missing"),
        (
            "from = \"Victoria\"\nto = \"Seattle\"\nrelay = \"starlink\"\naccess.profile = \"starlnk\"".to_owned(),
            "path.access.profile: unknown access profile",
        ),
        (
            "from = \"Victoria\"\nto = \"Seattle\"\nrelay = \"starlink\"\naccess.profil = \"starlink\"".to_owned(),
            "path.access.profil: unknown field `profil`",
        ),
    ] {
        let found = error(&path);
        assert!(found.starts_with(&format!("x.toml: {expected}")), "{path}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn jitter_is_checked_against_the_computed_delays() {
    let path = "from = \"Victoria\"\nto = \"Seattle\"\nrelay = \"access\"\n";
    let below = error(&format!("{path}jitter = {{ below = \"900 ms\" }}"));
    assert!(below.starts_with("x.toml: path.jitter.below: is 900 ms, of which half is"), "{below}");
    let every = error(&format!("{path}jitter = {{ every = \"1 us\" }}"));
    assert!(every.starts_with("x.toml: path.jitter.every: is too short"), "{every}");
}

#[test]
fn a_queue_in_bdp_is_of_the_mean_rate_of_the_whole_path() {
    let directory = tempfile::tempdir().unwrap();
    let ends = ["from", "to"].map(Endpoint::named);
    let delay = Some(Duration::from_millis(20));
    // 5 Mbit/s for a second and 65 Mbit/s for two, of which the run sees the first only.
    let frames = [(0, 5), (1, 65)].map(|(at_s, mbps)| Frame {
        at: Instant::START + Duration::from_secs(at_s),
        delay,
        delay_back: delay,
        rate: Some(Rate::from_bits_per_second(mbps * 1_000_000)),
        ..Frame::default()
    });
    let whole = Duration::from_secs(3);
    let header = PathHeader::plain("test", ends, whole, Duration::from_secs(1));
    let trace = PathTrace { header, frames: frames.to_vec() };
    write_path(&trace, &directory.path().join("x.parquet")).unwrap();
    let queue = |keys: &str| {
        let text = format!("[path]\nkind = \"trace\"\nfile = \"x.parquet\"\n{keys}");
        built(directory.path(), &text).unwrap().links.remove(0).queues[0].clone()
    };
    let run = "[run]\nduration = \"1 s\"\n";
    let size = queue(run);
    assert_eq!((size.bytes, size.rate_bps, size.rate_varies), (225_000, Some(45_000_000), true));
    assert_eq!(queue(&format!("loop = true\n{run}")), size);
    assert_eq!(queue(&format!("[link]\nqueue = \"20 ms\"\n{run}")).bytes, 112_500);
    // A change counts for the time for which it holds: 40 Mbit/s for 2 s of 10, 10 Mbit/s for the rest.
    let changed = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"40 Mbit/s\"\n\
                   [[change]]\nat = \"2 s\"\nrate = \"10 Mbit/s\"\n[run]\nduration = \"10 s\"\n";
    let link = built(directory.path(), changed).unwrap().links.remove(0);
    assert_eq!(link.queues[0].rate_bps, Some(16_000_000));
    assert_eq!(link.queues[0].bytes, Bytes::new(80_000).as_u64());
}

#[test]
fn a_rate_or_loss_of_the_scenario_that_replaces_the_measured_one_is_noted_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    write_file(&directory.path().join("x.parquet"), Some(End::From), None);
    let notes = |link: &str| {
        let text = format!("[path]\nkind = \"trace\"\nfile = \"x.parquet\"\n[link]\n{link}\n");
        built(directory.path(), &text).unwrap().notes
    };
    assert!(notes("queue = \"1 BDP\"").is_empty());
    let both = notes("rate = \"50 Mbit/s\"");
    assert!(both[0].starts_with(
        "link.rate = \"50 Mbit/s\" replaces the rate of the path file, whose mean is 10.000 Mbit/s, back 90.000 Mbit/s:"
    ), "{both:?}");
    let back = notes("back = { rate = \"50 Mbit/s\" }");
    assert!(back[0].contains(
        "link.back.rate = \"50 Mbit/s\" replaces the rate of the path file, whose mean is 90.000"
    ));
    let each = notes("rate = \"50 Mbit/s\"\nback = { rate = \"5 Mbit/s\" }");
    assert!(each[0].contains("mean is 10.000") && each[1].contains("mean is 90.000"), "{each:?}");
    std::fs::write(directory.path().join("flat.toml"), profile()).unwrap();
    let drawn = built(
        directory.path(),
        "[path]\nkind = \"access\"\nprofile = \"flat.toml\"\n[link.back]\nrate = \"9 Mbit/s\"\nloss = \"2 %\"\n",
    );
    let notes = drawn.unwrap().notes;
    assert!(
        notes[0].contains("replaces the rate of the access profile, whose mean is 80.000"),
        "{notes:?}"
    );
    assert!(notes[1].contains(
        "link.back.loss = \"2 %\" replaces the loss of the access profile, whose mean is 1.00 %"
    ));
}

#[test]
fn outages_of_a_file_drawn_from_a_profile_hold_packets_as_in_the_run_that_draws_it() {
    let directory = tempfile::tempdir().unwrap();
    let treatment = |access: Option<&str>, key: &str| {
        let delay = Some(Duration::from_millis(20));
        let frame = Frame { delay, delay_back: delay, ..Frame::default() };
        let ends = ["a", "b"].map(Endpoint::named);
        let (lasts, step) = (Duration::from_secs(3), Duration::from_secs(1));
        let header = PathHeader::plain("test", ends, lasts, step);
        let header = PathHeader { access: access.map(str::to_owned), ..header };
        let file = directory.path().join("x.parquet");
        write_path(&PathTrace { header, frames: vec![frame] }, &file).unwrap();
        let text = format!(
            "[path]\nkind = \"trace\"\nfile = \"x.parquet\"\n{key}\n[run]\nduration = \"1 s\"\n"
        );
        let experiment = built(directory.path(), &text).unwrap();
        let schedule = &experiment.links[0].forward.schedule;
        let saved = experiment.scenario["path"]["during_outage"].clone();
        assert_eq!(saved, serde_json::to_value(schedule.during_outage).unwrap());
        schedule.during_outage
    };
    assert_eq!(treatment(None, ""), DuringOutage::Drop);
    assert_eq!(treatment(Some("victoria-2024"), ""), DuringOutage::Hold);
    assert_eq!(treatment(Some("victoria-2024"), "during_outage = \"drop\""), DuringOutage::Drop);
}

#[test]
fn an_outage_is_refused_next_to_the_holes_of_an_access_profile() {
    let ends = "from = \"Victoria\"\nto = \"Seattle\"\n";
    for profile in ["relay = \"starlink\"", "relay = \"access\"\naccess.profile = \"starlink\""] {
        for outage in ["80 ms", "starlink"] {
            let refused = error(&format!("{ends}{profile}\noutage = \"{outage}\""));
            assert!(
                refused.starts_with("x.toml: path.outage: has no effect: the acc"),
                "{refused}"
            );
        }
        let directory = tempfile::tempdir().unwrap();
        let text = format!("[path]\n{ends}{profile}\noutage = \"none\"\n");
        built(directory.path(), &text).expect("the default, as run.json states it");
    }
}
