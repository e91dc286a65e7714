//! Readers of films, tried with damaged files.

use skyhop_needs::fuzz::{Trial, check_line};
use skyhop_units::Duration;
use skyhop_video::Film;
use skyhop_video::film::{film_of_mpd, film_of_size_lists};

use crate::films::{LIST, OPEN_TIMELINE, PERIODS, TEMPLATE, TIMELINE};

/// Check that a film that could be read can be written and read again.
fn check(film: Result<Film, skyhop_video::FilmError>) -> Result<(), String> {
    let film = film.map_err(|error| error.to_string())?;
    check_line(&film.name);
    let again = Film::of_keys(&film.to_keys(), &film.name).expect("a film");
    assert_eq!((again.tracks, again.chunk), (film.tracks, film.chunk));
    Ok(())
}

#[test]
fn films_in_toml() {
    let samples = [
        "description = \"d\"\nsource = \"s\"\nchunk = \"4 s\"\nchunks = 3\n[[track]]\nbitrate = \"1 Mbit/s\"\nname = \"720p\"\nsizes = [1, 2, 3]",
        "chunk = \"2 s\"\nchunks = 9\n[ladder]\ntop = \"9 Mbit/s\"\nratio = 1.5\ntracks = 3\n[variation]\nrelative_sd = 0.2\nseed = 1",
    ];
    Trial::of_text("film", samples)
        .run(|bytes| check(Film::of_toml(&String::from_utf8_lossy(bytes), "film.toml")));
}

#[test]
fn manifests() {
    Trial::of_text("mpd", [TEMPLATE, TIMELINE, LIST, OPEN_TIMELINE, PERIODS]).run(|bytes| {
        let sizes = |file: &str| file.len().is_multiple_of(2).then_some(file.len() as u64);
        let text = String::from_utf8_lossy(bytes);
        check(film_of_mpd(&text, "film.mpd", &|_| None))?;
        // Some of the film's files may be missing here.
        check(film_of_mpd(&text, "film.mpd", &sizes)).unwrap_or_else(|what| check_line(&what));
        Ok::<(), String>(())
    });
}

#[test]
fn lists_of_sizes() {
    Trial::of_text("size-list", ["1000\n2000\n3000\n", "17\n"]).run(|bytes| {
        let list = ("video_size_0".to_owned(), String::from_utf8_lossy(bytes).into_owned());
        check(film_of_size_lists("sizes", &[list], Duration::from_secs(4), &[]))
    });
}
