throw new Error('no memory left');
