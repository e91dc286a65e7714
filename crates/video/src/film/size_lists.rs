//! Pensieve's lists of chunk sizes: one file per track (video_size_0, video_size_1, …), with the size of one
//! chunk in bytes per line.

use skyhop_units::{Duration, Quoted, Rate};

use super::{Film, FilmError, Track};

/// Create a film from lists in ascending order of tracks, each with its file's name for messages. The
/// bitrates are those of Pensieve's ladder if they are passed, otherwise they are computed from the mean
/// sizes.
///
/// # Errors
/// A line is not a number, lists have different lengths, or there is no list.
pub fn film_of_size_lists(
    origin: &str,
    lists: &[(String, String)],
    chunk: Duration,
    bitrates: &[Rate],
) -> Result<Film, FilmError> {
    let sizes: Vec<Vec<u64>> =
        lists.iter().map(|(file, text)| sizes_of(file, text)).collect::<Result<_, _>>()?;
    if !bitrates.is_empty() && bitrates.len() != sizes.len() {
        let (lists, given) = (sizes.len(), bitrates.len());
        return Err(FilmError::no_film(
            origin,
            format!("{lists} lists of sizes, but {given} bitrates"),
        ));
    }
    let tracks = sizes.iter().enumerate().map(|(track, sizes)| {
        let bitrate = bitrates.get(track).copied().unwrap_or_else(|| mean_rate(sizes, chunk));
        Track { bitrate, name: None }
    });
    Film::new(origin, chunk, tracks.collect(), &sizes)
}

fn sizes_of(file: &str, text: &str) -> Result<Vec<u64>, FilmError> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            line.trim().parse().map_err(|_| FilmError::Syntax {
                origin: file.to_owned(),
                line: Some(number),
                what: format!(
                    "{} is not a size; expected a whole number of bytes",
                    Quoted(line.trim())
                ),
            })
        })
        .collect()
}

fn mean_rate(sizes: &[u64], chunk: Duration) -> Rate {
    let bits: f64 = sizes.iter().map(|size| *size as f64 * 8.0).sum();
    let length_s = sizes.len() as f64 * chunk.as_secs_f64();
    Rate::from_bits_per_second(if length_s > 0.0 { (bits / length_s).round() as u64 } else { 0 })
}
