"""A cluster whose ranks are far away: guesses and rows cost nothing beside the link, and a round
takes at least twice the delay, on every machine.

    class Far(FarCluster):
        delay_s = 0.004

    class FarWorld(FarRanks, World):  # any other Cluster
        delay_s = 0.05
"""
from generations import GenerationCluster
from slow_link import SlowLink


class FarRanks:
    """Before a Cluster."""
    delay_s = 0.002  # each way
    links = ()

    def start_coordinator(self):
        if not self.links:
            self._open_links()
        super().start_coordinator()

    def _open_links(self):
        self.links = []
        far = []
        for rank, address in enumerate(self.worker_addresses):
            listen = f"{self.folder}/link{rank}"
            self.links.append(SlowLink(listen, address.removeprefix("unix:"), self.delay_s))
            far.append(f"unix:{listen}")
        self.worker_addresses = far

    def move(self, delay_s):
        """Changes the delay of connections to come: those of the next coordinator."""
        for link in self.links:
            link.delay_s = delay_s

    def stop(self):
        for link in self.links:
            link.close()
        return super().stop()


class FarCluster(FarRanks, GenerationCluster):
    pass
