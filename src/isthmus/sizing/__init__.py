"""What a load needs: lanes, cores, memory, network; from constants that `isthmus bench --calibrate` measured."""
