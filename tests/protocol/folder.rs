//! The folders of leases as the kernel keeps them: who may create, link, rename, unlink, write and
//! lock which file.
//!
//! Sources: path_resolution(7), unlink(2), rename(2), link(2), proc_sys_fs(5)
//! (`protected_hardlinks`) and fcntl(2) of the Linux man-pages.

/// A user.
pub(crate) type Uid = u8;
/// The id in an entry and in its names.
pub(crate) type Id = u8;
/// The number of a file.
pub(crate) type Inode = u8;

/// The user with every right.
pub(crate) const ROOT: Uid = 0;
/// The user who keeps to nothing.
pub(crate) const STRANGER: Uid = 9;

/// A directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dir {
    /// `/run/gpuws`: root's, mode 1777.
    Shared,
    /// `/run/gpuws/u<UID>`: that user's, mode 0755.
    Of(Uid),
    /// A place of the stranger's on the same file system, which nobody reads.
    Elsewhere,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Name {
    /// `queue/place-…-ID`
    Queue(Id),
    /// `try-ID`
    Try(Id),
    /// `lease-ID`
    Lease(Id),
    /// `kept-ID`
    Kept(Id),
    /// The table of the first edition, mode 0666, empty.
    Table,
}

/// What is written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Text {
    pub(crate) id: Id,
    pub(crate) ticket: u8,
    /// A bit for each device.
    pub(crate) devices: u8,
    /// GiB of each device.
    pub(crate) memory: u8,
    /// The lease that it was taken out of, and its owner.
    pub(crate) within: Option<(Id, Uid)>,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct File {
    pub(crate) owner: Uid,
    /// Mode 0666; else 0644.
    pub(crate) all_write: bool,
    pub(crate) text: Option<Text>,
    /// Who wrote the text. The kernel does not keep it: properties are judged by it.
    pub(crate) author: Uid,
    /// A bit for each process that holds the write-locked open file.
    pub(crate) locked: u16,
}

/// Every file and every name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Folders {
    files: Vec<Option<File>>,
    names: Vec<(Dir, Name, Inode)>,
    /// Users' directories that have the mode 0700 still, by the umask of their makers.
    closed: Vec<Uid>,
    /// Users' directories that are to be made.
    missing: Vec<Uid>,
    /// `fs.protected_hardlinks`
    protected_hardlinks: bool,
}

impl Folders {
    pub(crate) fn new(protected_hardlinks: bool) -> Self {
        Folders { protected_hardlinks, ..Folders::default() }
    }

    /// Takes users' directories away.
    pub(crate) fn without(mut self, mut users: Vec<Uid>) -> Self {
        users.sort_unstable();
        users.dedup();
        self.missing = users;
        self
    }

    pub(crate) fn is_missing(&self, user: Uid) -> bool {
        self.missing.contains(&user)
    }

    pub(crate) fn is_closed(&self, user: Uid) -> bool {
        self.closed.contains(&user)
    }

    /// Makes a user's directory, with mode 0700.
    pub(crate) fn make_dir(&mut self, user: Uid) {
        self.missing.retain(|other| *other != user);
        self.closed.push(user);
        self.closed.sort_unstable();
    }

    /// Gives a user's directory the mode 0755.
    pub(crate) fn open_dir(&mut self, user: Uid) {
        self.closed.retain(|other| *other != user);
    }

    /// Tells whether a user may list a directory and open what is in it.
    pub(crate) fn may_read(&self, who: Uid, dir: Dir) -> bool {
        match dir {
            Dir::Of(owner) => who == owner || who == ROOT || !self.is_closed(owner),
            Dir::Shared | Dir::Elsewhere => true,
        }
    }

    pub(crate) fn file(&self, inode: Inode) -> Option<&File> {
        self.files.get(usize::from(inode))?.as_ref()
    }

    pub(crate) fn names(&self) -> &[(Dir, Name, Inode)] {
        &self.names
    }

    /// Returns the file of a name.
    pub(crate) fn at(&self, dir: Dir, name: Name) -> Option<Inode> {
        let found = self.names.iter().find(|(d, n, _)| (*d, *n) == (dir, name));
        found.map(|(_, _, inode)| *inode)
    }

    /// Returns how many names a file has (`st_nlink`).
    pub(crate) fn links(&self, inode: Inode) -> usize {
        self.names.iter().filter(|(_, _, of)| *of == inode).count()
    }

    /// Tells whether some process holds the write lock.
    pub(crate) fn is_locked(&self, inode: Inode) -> bool {
        self.file(inode).is_some_and(|file| file.locked != 0)
    }

    fn may_add(who: Uid, dir: Dir) -> bool {
        who == ROOT
            || match dir {
                Dir::Shared => true,
                Dir::Of(owner) => owner == who,
                Dir::Elsewhere => who == STRANGER,
            }
    }

    /// The sticky bit leaves a name to the owner of its file (and to the directory's, who is root).
    fn may_remove(&self, who: Uid, dir: Dir, inode: Inode) -> bool {
        let own = self.file(inode).is_some_and(|file| file.owner == who);
        Self::may_add(who, dir) && (dir != Dir::Shared || own || who == ROOT)
    }

    fn may_write(&self, who: Uid, inode: Inode) -> bool {
        self.file(inode).is_some_and(|file| file.owner == who || who == ROOT || file.all_write)
    }

    fn add(&mut self, dir: Dir, name: Name, inode: Inode) {
        let place = self.names.partition_point(|other| *other < (dir, name, inode));
        self.names.insert(place, (dir, name, inode));
    }

    fn drop_name(&mut self, dir: Dir, name: Name) -> Option<Inode> {
        let place = self.names.iter().position(|(d, n, _)| (*d, *n) == (dir, name))?;
        let (_, _, inode) = self.names.remove(place);
        self.forget(inode);
        Some(inode)
    }

    /// A file without names that nobody holds is gone.
    fn forget(&mut self, inode: Inode) {
        if self.links(inode) == 0 && !self.is_locked(inode) {
            self.files[usize::from(inode)] = None;
        }
    }

    /// Makes a file; false where the kernel refuses. What is done under a name that nobody reads
    /// (written, locked, `fchmod`, renamed) is one step. A file that had the number before loses
    /// the names that a stranger gave it elsewhere: nobody reads them.
    pub(crate) fn create(
        &mut self,
        who: Uid,
        dir: Dir,
        name: Name,
        inode: Inode,
        file: File,
    ) -> bool {
        if !Self::may_add(who, dir) || self.at(dir, name).is_some() {
            return false;
        }
        self.names.retain(|(_, _, of)| *of != inode);
        let index = usize::from(inode);
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        self.files[index] = Some(file);
        self.add(dir, name, inode);
        true
    }

    pub(crate) fn link(&mut self, who: Uid, inode: Inode, dir: Dir, name: Name) -> bool {
        let Some(file) = self.file(inode) else { return false };
        let source = !self.protected_hardlinks
            || file.owner == who
            || who == ROOT
            || self.may_write(who, inode);
        if !source || !Self::may_add(who, dir) || self.at(dir, name).is_some() {
            return false;
        }
        self.add(dir, name, inode);
        true
    }

    /// Renames a file, with `RENAME_NOREPLACE`.
    pub(crate) fn rename(&mut self, who: Uid, from: (Dir, Name), to: (Dir, Name)) -> bool {
        let Some(inode) = self.at(from.0, from.1) else { return false };
        if !self.may_remove(who, from.0, inode)
            || !Self::may_add(who, to.0)
            || self.at(to.0, to.1).is_some()
        {
            return false;
        }
        self.names.retain(|(dir, name, _)| (*dir, *name) != from);
        self.add(to.0, to.1, inode);
        true
    }

    pub(crate) fn unlink(&mut self, who: Uid, dir: Dir, name: Name) -> bool {
        let Some(inode) = self.at(dir, name) else { return false };
        self.may_remove(who, dir, inode) && self.drop_name(dir, name).is_some()
    }

    pub(crate) fn write(&mut self, who: Uid, inode: Inode, text: Text) -> bool {
        if !self.may_write(who, inode) {
            return false;
        }
        let Some(file) = self.files[usize::from(inode)].as_mut() else { return false };
        (file.text, file.author) = (Some(text), who);
        true
    }

    /// Takes the write lock for a process, which needs a descriptor that is open for writing.
    pub(crate) fn lock(&mut self, who: Uid, inode: Inode, process: u16) -> bool {
        if !self.may_write(who, inode) || self.is_locked(inode) {
            return false;
        }
        let Some(file) = self.files[usize::from(inode)].as_mut() else { return false };
        file.locked = process;
        true
    }

    /// A process inherits the locked open file of another.
    pub(crate) fn inherit(&mut self, inode: Inode, process: u16) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked |= process;
        }
    }

    /// Unlocks an open file for all who hold it.
    pub(crate) fn unlock(&mut self, inode: Inode) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked = 0;
        }
        if self.file(inode).is_some() {
            self.forget(inode);
        }
    }

    /// Takes the mark of a holder away, without anything else that comes with its end.
    pub(crate) fn release(&mut self, inode: Inode) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked = 0;
        }
    }

    /// The kernel closes all files of a process at once.
    pub(crate) fn end(&mut self, process: u16) {
        for inode in 0..self.files.len() {
            if let Some(file) = self.files[inode].as_mut() {
                file.locked &= !process;
                self.forget(inode as Inode);
            }
        }
    }
}
