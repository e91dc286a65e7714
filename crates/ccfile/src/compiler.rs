//! The compilers of this machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use skyhop_cc::Caller;

use crate::error::CcFileError;
use crate::sources::Sources;

/// What a file is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// This machine: a shared object.
    Native,
    /// The kernel's BPF, from 6.10 on.
    Bpf,
    /// The kernel's BPF before 6.10, where `cong_control` has two arguments.
    BpfBefore6_10,
}

impl Target {
    /// What a user knows it as.
    fn name(self) -> &'static str {
        match self {
            Self::Native => "the simulator",
            Self::Bpf | Self::BpfBefore6_10 => "the kernel's BPF",
        }
    }

    /// What the compiled file ends with.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Native => "so",
            Self::Bpf | Self::BpfBefore6_10 => "bpf.o",
        }
    }

    /// Compilers, by preference.
    fn compilers(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["cc", "gcc", "clang"],
            Self::Bpf | Self::BpfBefore6_10 => &["clang"],
        }
    }

    /// As build.rs of crates/cc has it, so that a copy of one of skyhop's own does the same.
    fn flags(self) -> Vec<String> {
        let common = [
            "-O2",
            "-g",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            // Hooks have arguments that not everybody needs.
            "-Wno-unused-parameter",
            "-fdiagnostics-color=never",
        ];
        // What compiles with a warning and crashes.
        let errors = ["-Werror=implicit-function-declaration", "-Werror=int-conversion"];
        let own: &[&str] = match self {
            // What is not there is found now, and not when it is loaded.
            Self::Native => &["-DSKYHOP_SHARED", "-fPIC", "-shared", "-Wl,-z,defs"],
            Self::Bpf => &["-target", "bpf", "-mcpu=v3"],
            Self::BpfBefore6_10 => &["-target", "bpf", "-mcpu=v3", "-DSKYHOP_BEFORE_6_10"],
        };
        let mut flags: Vec<String> =
            common.iter().chain(&errors).chain(own).map(|flag| (*flag).to_owned()).collect();
        match self {
            Self::Native => flags.push("-lm".to_owned()),
            Self::Bpf | Self::BpfBefore6_10 => {
                // Debian keeps the headers that linux/types.h needs under the host's name.
                let multiarch = format!("/usr/include/{}-linux-gnu", env::consts::ARCH);
                flags.extend(["-c".to_owned(), "-idirafter".to_owned(), multiarch]);
            }
        }
        flags
    }
}

/// A compiler for a target.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    target: Target,
    /// As it was found, which is what it is called by.
    program: PathBuf,
}

impl Compiler {
    /// The first of this machine's.
    ///
    /// # Errors
    /// [`CcFileError::NoCompiler`], [`CcFileError::NoClang`].
    pub(crate) fn find(target: Target, file: &str) -> Result<Self, CcFileError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = env::split_paths(&path).collect();
        let places = target
            .compilers()
            .iter()
            .flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
        let program = places.into_iter().find(|place| is_program(place));
        program.map(|program| Self { target, program }).ok_or_else(|| match target {
            Target::Native => CcFileError::NoCompiler { file: file.to_owned() },
            Target::Bpf | Target::BpfBefore6_10 => CcFileError::NoClang {
                file: file.to_owned(),
                problem: "there is no clang here to compile it for the kernel".to_owned(),
            },
        })
    }

    /// What it compiles for.
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// What it does and which it is: another one, or the same with other flags, has another.
    pub(crate) fn identity(&self) -> String {
        let real = fs::canonicalize(&self.program).unwrap_or_else(|_| self.program.clone());
        let metadata = fs::metadata(&real);
        let (size, changed) = metadata
            .map_or((0, (0, 0)), |known| (known.size(), (known.mtime(), known.mtime_nsec())));
        format!("{} {size} {changed:?} {:?}", real.display(), self.target.flags())
    }

    /// Begins to compile `sources` with skyhop's `headers` into `output`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        &self,
        sources: &Sources,
        headers: &Path,
        output: &Path,
    ) -> Result<Compilation, CcFileError> {
        let child = Command::new(&self.program)
            .arg("-I")
            .arg(headers)
            .arg("-o")
            .arg(output)
            .arg(shown(sources.file()))
            .args(self.target.flags())
            // Headers from elsewhere would not be in the digest.
            .env_remove("CPATH")
            .env_remove("C_INCLUDE_PATH")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| CcFileError::Write {
                place: self.program.display().to_string(),
                reason: format!("cannot be started: {error}"),
            })?;
        Ok(Compilation { child, target: self.target, compiler: self.program.clone() })
    }
}

/// A compilation that goes on.
pub(crate) struct Compilation {
    child: Child,
    target: Target,
    compiler: PathBuf,
}

impl Compilation {
    /// Waits for its end; returns what the compiler printed where that is not the end.
    ///
    /// # Errors
    /// [`CcFileError::Compile`], [`CcFileError::NoClang`].
    pub(crate) fn finish(self, sources: &Sources) -> Result<String, CcFileError> {
        let file = sources.file().to_owned();
        let compiler = self.compiler.display().to_string();
        let output = self.child.wait_with_output().map_err(|error| CcFileError::Write {
            place: compiler.clone(),
            reason: error.to_string(),
        })?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(messages);
        }
        if let Some(problem) = unfit(&messages).filter(|_| self.target != Target::Native) {
            return Err(CcFileError::NoClang { file, problem: problem.to_owned() });
        }
        if let Some((place, hook)) = unknown_hook(&messages) {
            let hooks = Caller::LINUX_CALLS.join(", ");
            return Err(CcFileError::UnknownHook { place, hook, hooks });
        }
        let messages = if messages.trim().is_empty() {
            format!("{compiler}: {}\n", output.status)
        } else {
            messages
        };
        Err(CcFileError::Compile { file, target: self.target.name(), compiler, messages })
    }
}

/// What a clang says that cannot do it, whatever the file.
fn unfit(messages: &str) -> Option<&'static str> {
    if messages.contains("unable to create target") || messages.contains("unknown target triple") {
        return Some("this clang does not compile for BPF");
    }
    let lacks = |header| messages.contains(&format!("'{header}' file not found"));
    (lacks("linux/types.h") || lacks("asm/types.h")).then_some("the kernel's headers are not here")
}

/// Where a module names a hook that there is not, and its name: gcc's and clang's words for it.
fn unknown_hook(messages: &str) -> Option<(String, String)> {
    let about_hooks =
        |line: &&str| line.contains(" error: ") && line.contains("tcp_congestion_ops");
    messages.lines().filter(about_hooks).find_map(|line| {
        let (place, what) = line.split_once(" error: ")?;
        let quoted = ["has no member named ", "field designator "]
            .iter()
            .find_map(|words| what.split_once(words).map(|(_, rest)| rest))?;
        let name = quoted.trim_start_matches(['\'', '‘', '"']);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        Some((place.trim_end_matches(':').to_owned(), name[..end].to_owned()))
    })
}

/// A file as a user in this directory would name it: compilers print it like that.
fn shown(file: &str) -> OsString {
    let whole = Path::new(file);
    let here = env::current_dir().ok();
    let below = here.as_deref().and_then(|here| whole.strip_prefix(here).ok());
    below.unwrap_or(whole).as_os_str().to_owned()
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_compilers_words_for_an_unknown_hook_are_understood() {
        let gcc = "In file included from a.c:2:\na.c:14:16: error: ‘const struct tcp_congestion_ops’ has no member \
                   named ‘ssthres’; did you mean ‘ssthresh’?\n";
        let clang = "a.c:14:9: error: field designator 'ssthres' does not refer to any field in type 'const struct \
                     tcp_congestion_ops'; did you mean 'ssthresh'?\n";
        let of = |messages| unknown_hook(messages);
        assert_eq!(of(gcc), Some(("a.c:14:16".to_owned(), "ssthres".to_owned())));
        assert_eq!(of(clang), Some(("a.c:14:9".to_owned(), "ssthres".to_owned())));
        let other = "a.c:10:42: error: ‘struct tcp_sock’ has no member named ‘snd_cwndd’\n";
        assert_eq!(of(other), None);
    }
}
