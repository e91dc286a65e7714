//! C compilers of this machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use skyhop_cc::Caller;

use crate::error::CcFileError;
use crate::sources::Sources;

/// Target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Shared object for this machine.
    Native,
    /// BPF object for Linux 6.10 and newer.
    Bpf,
    /// BPF object for Linux before 6.10, where `cong_control` has two arguments.
    BpfBefore6_10,
}

impl Target {
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::Bpf, Self::BpfBefore6_10];

    /// Name of the target in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Native => "the simulator",
            Self::Bpf | Self::BpfBefore6_10 => "the kernel's BPF",
        }
    }

    /// Extension of the compiled file.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Native => "so",
            Self::Bpf | Self::BpfBefore6_10 => "bpf.o",
        }
    }

    /// Names of suitable compilers, in order of preference.
    fn compilers(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["cc", "gcc", "clang"],
            Self::Bpf | Self::BpfBefore6_10 => &["clang"],
        }
    }

    /// Compiler flags. They are those of build.rs of crates/cc, so that a user's copy of one of
    /// skyhop's files behaves like the original.
    fn flags(self) -> Vec<String> {
        let common = [
            "-O2",
            "-g",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            // Hooks have arguments that many modules do not use.
            "-Wno-unused-parameter",
            "-fdiagnostics-color=never",
        ];
        // Warnings about code that would crash are errors.
        let errors = ["-Werror=implicit-function-declaration", "-Werror=int-conversion"];
        let own: &[&str] = match self {
            // With -z defs, undefined symbols are link errors, not load errors.
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

/// Compiler of this machine for a target.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    target: Target,
    /// Path of the compiler as found in $PATH, by which it is run.
    program: PathBuf,
}

impl Compiler {
    /// Find the first compiler in $PATH that is suitable for `target`.
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
                problem: "compiling it for the kernel needs clang, which is not installed"
                    .to_owned(),
            },
        })
    }

    /// Target of this compiler.
    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Identity for the cache key: the program's real path, size, change time and flags.
    pub(crate) fn identity(&self) -> String {
        let real = fs::canonicalize(&self.program).unwrap_or_else(|_| self.program.clone());
        let metadata = fs::metadata(&real);
        let (size, changed) = metadata
            .map_or((0, (0, 0)), |known| (known.size(), (known.mtime(), known.mtime_nsec())));
        format!("{} {size} {changed:?} {:?}", real.display(), self.target.flags())
    }

    /// Start compiling `sources` with skyhop's `headers` to `output`.
    ///
    /// # Errors
    /// The compiler cannot be started.
    pub(crate) fn start(
        &self,
        sources: &Sources,
        headers: &Path,
        output: &Path,
    ) -> Result<Compilation, CcFileError> {
        self.spawn(self.command(sources.file(), headers).arg("-o").arg(output))
    }

    /// Start listing the files that a compilation of `file` with skyhop's `headers` reads.
    ///
    /// # Errors
    /// The compiler cannot be started.
    pub(crate) fn start_listing(
        &self,
        file: &str,
        headers: &Path,
    ) -> Result<Compilation, CcFileError> {
        let mut command = self.command(file, headers);
        self.spawn(command.args(["-M", "-MT", "file"]).stdout(Stdio::piped()))
    }

    fn command(&self, file: &str, headers: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("-I")
            .arg(headers)
            .arg(relative_to_cwd(file))
            .args(self.target.flags())
            // Only the user's and skyhop's directories are searched, and only the output is written.
            .env_remove("CPATH")
            .env_remove("C_INCLUDE_PATH")
            .env_remove("DEPENDENCIES_OUTPUT")
            .env_remove("SUNPRO_DEPENDENCIES")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<Compilation, CcFileError> {
        let child = command.spawn().map_err(|error| CcFileError::Write {
            place: self.program.display().to_string(),
            reason: format!("cannot be started: {error}"),
        })?;
        Ok(Compilation { child, target: self.target, compiler: self.program.clone() })
    }
}

/// Compiler process that is running.
pub(crate) struct Compilation {
    child: Child,
    target: Target,
    compiler: PathBuf,
}

/// Output of a compiler.
pub(crate) struct Output {
    /// Warnings of the compiler.
    pub(crate) messages: String,
    /// Rule of the files that were read, if it was asked for.
    pub(crate) rule: Vec<u8>,
}

impl Compilation {
    /// Wait for the compiler; `file` is the source.
    ///
    /// # Errors
    /// [`CcFileError::Compile`], [`CcFileError::NoClang`].
    pub(crate) fn finish(self, file: &str) -> Result<Output, CcFileError> {
        let file = file.to_owned();
        let compiler = self.compiler.display().to_string();
        let output = self.child.wait_with_output().map_err(|error| CcFileError::Write {
            place: compiler.clone(),
            reason: error.to_string(),
        })?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(Output { messages, rule: output.stdout });
        }
        if let Some(problem) = clang_problem(&messages).filter(|_| self.target != Target::Native) {
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

/// Reason why this clang cannot compile any file for BPF, from its messages; `None` for other errors.
fn clang_problem(messages: &str) -> Option<&'static str> {
    if messages.contains("unable to create target") || messages.contains("unknown target triple") {
        return Some("this clang does not compile for BPF");
    }
    let lacks = |header| messages.contains(&format!("'{header}' file not found"));
    (lacks("linux/types.h") || lacks("asm/types.h")).then_some("the kernel's headers are missing")
}

/// Position and name of an unknown hook, from the messages of gcc or clang.
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

/// Path of `file`, relative to the current directory if possible: compilers print a path as it was
/// passed to them, and users read relative paths more easily.
fn relative_to_cwd(file: &str) -> OsString {
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
    fn an_unknown_hook_is_found_in_both_compilers_messages() {
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
