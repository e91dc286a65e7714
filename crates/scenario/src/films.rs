//! Films by name: those that come with skyhop, and the user's files.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use skyhop_model::other_kind;
use skyhop_units::{Duration, did_you_mean};
use skyhop_video::film::{Film, film_of_mpd, film_of_size_lists};

use crate::ScenarioError;
use crate::error::unreadable;

/// Prefix of the names of Pensieve's files of chunk sizes, and the name of the film with the same bitrates.
const SIZE_LIST: &str = "video_size_";
const PENSIEVE: &str = "pensieve";
/// Largest film file in bytes, far more than the largest valid film has.
const MOST_BYTES: u64 = 64 << 20;
/// Largest number of lists that are read.
const MOST_LISTS: usize = skyhop_video::film::MOST_TRACKS;

/// Read the film called `name`: one that comes with skyhop, a TOML file, a DASH manifest (.mpd) with or
/// without its files next to it, or a directory of Pensieve's lists of sizes. Files are looked up relative to
/// `base` first.
///
/// # Errors
/// There is no such film, or it is not valid; the message names the file, or `origin` and `key`.
pub fn film(name: &str, base: &Path, origin: &str, key: &str) -> Result<Film, ScenarioError> {
    let wrong = |error: skyhop_video::FilmError| ScenarioError::key(origin, key, error.to_string());
    if skyhop_video::film::film_names().iter().any(|known| known == name) {
        return Film::shipped(name).map_err(wrong);
    }
    let Some(path) = given_film(base, name) else {
        let known = skyhop_video::film::film_names();
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let known = known.join(", ");
        let what = format!(
            "unknown film {}{hint}; expected {known}, a TOML file, a DASH manifest (.mpd), or a directory of Pensieve's lists \
             of sizes",
            skyhop_units::Quoted(name)
        );
        return Err(ScenarioError::key(origin, key, what));
    };
    if path.is_dir() {
        return film_from_size_lists(&path)?.map_err(wrong);
    }
    let text = read_text(&path)?;
    let file = path.display().to_string();
    let is_manifest = path.extension().is_some_and(|ending| ending == "mpd" || ending == "xml");
    let read = if is_manifest {
        film_of_mpd(&text, &file, &|address| media_file_size(&path, address))
    } else {
        Film::of_toml(&text, &file)
    };
    read.map_err(wrong)
}

/// Read a file as text, unless it is larger than any film.
fn read_text(path: &Path) -> Result<String, ScenarioError> {
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    read.map_err(|source| unreadable(path, source))?;
    if let Some(what) = other_kind(text.as_bytes()) {
        return Err(ScenarioError::OtherKind { path: path.to_owned(), what });
    }
    if text.len() as u64 > MOST_BYTES {
        let what = "is larger than 64 MiB; expected a film";
        return Err(ScenarioError::key(&path.display().to_string(), "the file", what));
    }
    Ok(text)
}

/// Find the user's file or directory `name`; `None` if `name` is the name of a film that comes with skyhop.
pub(crate) fn given_film(base: &Path, name: &str) -> Option<PathBuf> {
    let is_shipped = skyhop_video::film::film_names().iter().any(|known| known == name);
    let places = [base.join(name), PathBuf::from(name)];
    places.into_iter().find(|path| path.exists()).filter(|_| !is_shipped && !name.is_empty())
}

/// Size of a file that a manifest refers to by the relative address `address`; `None` if the
/// manifest's directory has no such file.
fn media_file_size(manifest: &Path, address: &str) -> Option<u64> {
    let relative = Path::new(address);
    let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let file = manifest.parent()?.join(relative);
    is_inside
        .then(|| fs::metadata(file).ok())
        .flatten()
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
}

/// Read the lists of chunk sizes in a directory: video_size_0, video_size_1, and so on.
fn film_from_size_lists(
    directory: &Path,
) -> Result<Result<Film, skyhop_video::FilmError>, ScenarioError> {
    let mut lists = Vec::new();
    while lists.len() < MOST_LISTS {
        let path = directory.join(format!("{SIZE_LIST}{}", lists.len()));
        if !path.is_file() {
            break;
        }
        let text = read_text(&path)?;
        lists.push((path.display().to_string(), text));
    }
    let origin = directory.display().to_string();
    if lists.is_empty() {
        let what = format!("has no lists of sizes; expected {SIZE_LIST}0, {SIZE_LIST}1, …");
        return Err(ScenarioError::key(&origin, "the directory", what));
    }
    let ladder = Film::shipped(PENSIEVE).map(|film| film.tracks).unwrap_or_default();
    let bitrates: Vec<_> = ladder.iter().map(|track| track.bitrate).collect();
    let bitrates = if bitrates.len() == lists.len() { &bitrates[..] } else { &[] };
    Ok(film_of_size_lists(&origin, &lists, Duration::from_secs(4), bitrates))
}
